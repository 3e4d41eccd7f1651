"""The programs of examples/embed decode what transformers decodes, from bundles and without partc."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.config.model import load_model_config
from partc.verifier.reference import open_reference

EXAMPLES = Path(__file__).parents[2] / "examples"
EMBED = EXAMPLES / "embed"
PROMPT = [1, 40, 77, 130, 25, 300, 12]
MODEL = f"model: {EXAMPLES / 'storyteller'}\nmax_sequence: 48\nmax_batch: 2\nmax_requests: 1\n"
DEVICE = "flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 1 GB"

pytestmark = pytest.mark.hf


def compiled(folder: Path, target: str) -> Path:
    """The folder of the one device of a bundle of the example model."""
    (folder / "model.yaml").write_text(MODEL)
    (folder / "devices.yaml").write_text(f"source: here\ndevices:\n  here: {{{target}, {DEVICE}}}\n")
    arguments = ["compile", str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run([*arguments, "-o", str(folder / "build")]) == 0
    return folder / "build" / "devices" / "here"


def expected(folder: Path, prompt: list[int], count: int = 16) -> list[int]:
    return open_reference(load_model_config(str(folder / "model.yaml"))).generate(prompt, count)


def printed(command: Sequence[str | Path]) -> list[int]:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()]


def refused(command: Sequence[str | Path]) -> str:
    """The one line with which a program refuses its input."""
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    return result.stderr.strip()


def need(missing: str | None) -> None:
    """Skip, or fail in continuous integration, where everything must be there."""
    if missing and os.environ.get("CI"):
        pytest.fail(f"tests of embedding must run in CI: {missing}", pytrace=False)
    if missing:
        pytest.skip(missing)


@pytest.mark.in_turns(8)
@pytest.mark.tvm
def test_a_program_in_cpp_decodes_from_a_library(tmp_path: Path) -> None:
    need(None if shutil.which("g++") else "no g++ (apt-get install g++)")
    program = tmp_path / "decode"
    options = ["-std=c++17", "-Wall", "-Werror"]
    subprocess.run(["g++", *options, str(EMBED / "decode.cpp"), "-o", str(program), "-ldl"], check=True)
    folder = compiled(tmp_path, "target: tvm, options: {chunks: [8]}")
    assert printed([program, folder, ",".join(map(str, PROMPT))]) == expected(tmp_path, PROMPT)
    assert printed([program, folder, "5", "3"]) == expected(tmp_path, [5], 3)
    assert (
        refused([program, folder, ",".join(["1"] * 49)]) == "prompt and answer are longer than max_sequence"
    )
    assert refused([program, folder, "5", "49"]) == "prompt and answer are longer than max_sequence"
    assert refused([program, folder, "5,768"]) == "ids are numbers from 0 to 767"
    assert refused([program, folder, "five"]) == "IDS and COUNT are whole numbers"
    assert refused([program, tmp_path, "5"]) == f"cannot read {tmp_path}/build.json"
    build = json.loads((folder / "build.json").read_text())
    build["engine"]["library"]["needs"].append("telepathy")
    (folder / "build.json").write_text(json.dumps(build))
    (folder / "library.so").unlink()  # the refusal comes first
    assert refused([program, folder, "5"]) == "the library uses telepathy, which this processor has not"


@pytest.mark.in_turns(4)
@pytest.mark.ort
def test_a_program_for_node_decodes_from_a_graph(tmp_path: Path) -> None:
    need(None if shutil.which("node") else "no node (apt-get install nodejs npm)")
    module = EMBED / "node" / "node_modules" / "onnxruntime-node"
    need(
        None
        if module.is_dir()
        else "no onnxruntime-node (npm install --ignore-scripts in examples/embed/node)"
    )
    folder = compiled(tmp_path, "target: ort")
    ids = ",".join(map(str, PROMPT))
    assert printed(["node", EMBED / "node" / "decode.mjs", folder, ids]) == expected(tmp_path, PROMPT)
