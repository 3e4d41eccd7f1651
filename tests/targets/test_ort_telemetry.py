"""onnxruntime tells nobody of what runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

pytestmark = pytest.mark.ort
_RUN = """\
import sys
if sys.argv[2:]:
    import partc
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    made = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "g.onnx"
    path.write_bytes(onnx.helper.make_model(made, opset_imports=opset, ir_version=9).SerializeToString())
    return path


def test_partc_turns_it_off(graph: Path, tmp_path: Path) -> None:
    assert left_at_home(graph, tmp_path / "home", "partc") == []


def test_it_is_on_by_default(graph: Path, tmp_path: Path) -> None:
    """What the other test would find; once this fails, the variable is needed no more, or has another name."""
    import onnxruntime

    if onnxruntime.__version__ != "1.31.1" or sys.platform != "linux":
        pytest.skip("known of onnxruntime 1.31.1 on Linux")
    assert left_at_home(graph, tmp_path / "home")


def left_at_home(graph: Path, home: Path, *arguments: str) -> list[Path]:
    """The files that a process which loads `graph` leaves in an empty home."""
    home.mkdir()
    # Nothing else of the environment: onnxruntime is silent where it takes a machine for one that runs tests (CI).
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, "-c", _RUN, str(graph), *arguments]
    subprocess.run(command, check=True, env={**kept, "HOME": str(home)})
    return [path for path in home.rglob("*") if path.is_file() and "icrosoft" in str(path)]
