"""Warnings of libraries never reach the terminal; those who work on partc can have them back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_SPEAKS = """
import sys
from partc.cli import main
from partc.cli.plan import plan_command

def chatter(context):
    import logging, warnings
    import numpy as np
    warnings.warn("of a library", RuntimeWarning)
    warnings.simplefilter("always")
    warnings.warn("with a filter of its own")
    np.log(np.zeros(1))
    logging.getLogger("some.library").warning("in a log")

plan_command.invoke = chatter
sys.argv = ["partc", "plan", "x", "--target", "y"]
main.main()
"""


def _run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", _SPEAKS], capture_output=True, check=False, text=True, timeout=120
    )


def test_no_word_of_a_library() -> None:
    done = _run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_who_asks_for_warnings_gets_them() -> None:
    assert "of a library" in _run("-W", "default").stderr


@pytest.mark.ort
def test_folding_of_constants_is_quiet(tmp_path: Path) -> None:
    """The logarithm of a zero in a graph (a T5 has one) is no news for its user."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Log", ["zero"], ["log"]),
        helper.make_node("Cast", ["log"], ["whole"], to=onnx.TensorProto.INT64),
        helper.make_node("Cast", ["whole"], ["back"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["x", "back"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy")
    zero = numpy_helper.from_array(np.zeros(3, np.float32), "zero")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [zero]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 10
    onnx.save(model, tmp_path / "log.onnx")
    (tmp_path / "devices.yaml").write_text(
        'source: a\ndevices: {a: {target: "null", arch: x86_64, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, '
        "memory: 1 GiB}}\n"
    )
    arguments = ["plan", "log.onnx", "--target", "devices.yaml", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "partc.cli", *arguments],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
