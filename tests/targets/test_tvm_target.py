"""The tvm target as a whole: what it writes does not depend on when, where and by which process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from partc.format.role import load_role
from partc.ir.text import parse_module
from targets import tvm
from targets.tvm import kernels, operators
from targets.tvm.specialise import entries_of
from targets.tvm.target import CHUNKS
from tests.targets.compiled_steps import MAX, Compiled, module_of

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

ROOT = Path(__file__).parents[2]
GRAPH = """\
partc-ir 1
model {"name": "m", "task": "text-generation", "folder": "FOLDER", "dims": {"batch": 2, "sequence": 32}, \
"max_batch": 2, "max_sequence": 32}
graph part_0 opset 24 {
  input %x: f32[batch, sequence, 20]
  input %k: f32[batch, 2, sequence, 8]
  input %position: i64[batch]
  weight %up = f32[20, 36] from "model.safetensors"#"up"
  weight %down = f32[36, 20] from "model.safetensors"#"down"
  state %cache: f32[batch, 2, 32, 8]
  %rows: f32[batch, 2, 32, 8] = partc.UpdateState(%cache, %k, %position)
  %a: f32[batch, 2, sequence, 8] = partc.Attention(%k, %rows, %rows, %position) {causal = 1, scale = 0.5}
  %h: f32[batch, sequence, 36] = MatMul(%x, %up)
  %g: f32[batch, sequence, 36] = Gelu(%h)
  %y: f32[batch, sequence, 20] = MatMul(%g, %down)
  %z: f32[batch, sequence, 20] = Add(%y, %x)
  output %z
  output %a
}
"""
COMPILE = """\
import sys
from pathlib import Path
from partc.ir.graph import Part
from partc.format.role import load_role
from partc.ir.text import parse_module
from partc.pipeline.registry import load_target

module = parse_module(Path(sys.argv[1]).read_text())
target = load_target("tvm", {"chunks": (16,)})
part = Part("a", target.lower([module.graph], module.info), {}, "tvm")
target.emit(part, module.info, Path(sys.argv[2]), lambda *_: None)
"""


def _compiled(graph: Path, folder: Path, seed: str) -> dict[str, bytes]:
    """The files that a process writes; it finds no kernel that another one has kept."""
    folder.mkdir()
    cache = str(graph.parent / f"cache of {folder.name}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "XDG_CACHE_HOME": cache}
    subprocess.run(
        [sys.executable, "-c", COMPILE, str(graph), str(folder)],
        env=environment,
        cwd=graph.parent,
        check=True,
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.in_turns(6)
def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    draw = np.random.default_rng(0).standard_normal
    weights = {"up": draw((20, 36)).astype(np.float32), "down": draw((36, 20)).astype(np.float32)}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "graph.partc").write_text(GRAPH.replace("FOLDER", str(tmp_path)))
    first = _compiled(tmp_path / "graph.partc", tmp_path / "first", "1")
    assert sorted(first) == ["kernels.json", "library.so", "weights/part_0.safetensors"]
    assert _compiled(tmp_path / "graph.partc", tmp_path / "a_longer_name", "2") == first


@pytest.mark.hf
def test_a_compile_takes_no_torch_along(tmp_path: Path) -> None:
    """Whoever wants torch gets it afterwards."""
    code = (
        "import sys; from targets.tvm.target import TvmTarget, emitters_for; emitters_for(TvmTarget().machine);"
        "import tvm; tvm.runtime.tensor([1.0]); print('tvm' in sys.modules, 'torch' in sys.modules);"
        "import torch; print(torch.ones(2).sum().item())"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "2.0"]


def test_the_name_of_a_kernel_may_be_longer_than_that_of_a_file(tmp_path: Path) -> None:
    """Forty operators that become one kernel, which is called after them."""
    steps = [f"%v{n}: f32[batch, 20] = {('Sin', 'Cos', 'Neg')[n % 3]}(%v{n - 1})" for n in range(1, 101)]
    (tmp_path / "graph.partc").write_text(
        'partc-ir 1\nmodel {"name": "m", "task": "graph", "dims": {"batch": 2}, "max_batch": 2}\n'
        "graph part_0 opset 24 {\n  input %v0: f32[batch, 20]\n  "
        + "\n  ".join(steps)
        + "\n  output %v100\n}\n"
    )
    files = _compiled(tmp_path / "graph.partc", tmp_path / "made", "1")
    assert any(len(name) > 255 for name in re.findall(r"[a-z_0-9]+", files["kernels.json"].decode()))


def test_a_long_prompt_computes_less_than_twice_its_rows() -> None:
    module = parse_module(GRAPH.replace('"max_sequence": 32', '"max_sequence": 3000').replace("32}", "3000}"))
    sizes = [
        entry.sequence
        for entry in entries_of([module.graph], module.info, (1,), CHUNKS)[module.graph.name]
        if entry.batch == 2
    ]
    assert sizes == [1, 2, 4, 6, 8, 12, 16, 32, 64, 256, 512, 1024, 2048, 3000]


@pytest.mark.parametrize("package", [tvm, kernels, operators])
def test_a_package_says_what_every_file_of_it_is_for(package: ModuleType) -> None:
    folder = Path(package.__file__ or "").parent
    rows = [line.split("|")[1] for line in (package.__doc__ or "").splitlines() if line.startswith("| `")]
    listed = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w.]+/?)`", row)}
    parts = {
        path.name for path in folder.iterdir() if path.name[0] != "_" and (path / "__init__.py").is_file()
    }
    assert listed == parts | {path.name for path in folder.glob("[a-z]*.py")}


def test_the_sine_and_the_cosine_of_a_number_may_be_one_call(tmp_path: Path) -> None:
    """LLVM makes one of both; a kernel of `Tan` takes both, too."""
    lines = ["input %x: f32[batch, sequence, 5]"]
    lines += [f"%{op.lower()}: f32[batch, sequence, 5] = {op}(%x)" for op in ("Sin", "Cos", "Tan")]
    lines += ["%both: f32[batch, sequence, 5] = Mul(%sin, %cos)", "output %both", "output %tan"]
    compiled = Compiled(module_of(lines, tmp_path, "tvm", 1), tmp_path / "build")
    x = np.linspace(-1.5, 1.5, 5, dtype=np.float32).reshape(1, 1, 5)
    found = compiled.run({"x": x}, {"batch": 1, "sequence": 1})
    np.testing.assert_allclose(found["both"], np.sin(x) * np.cos(x), atol=1e-6)
    np.testing.assert_allclose(found["tan"], np.tan(x), rtol=1e-5)


@pytest.mark.in_turns(2)
def test_a_prompt_may_come_in_parts(tmp_path: Path) -> None:
    lines = ["input %k: f32[batch, 2, sequence, 8]", "input %position: i64[batch]"]
    lines += ["state %cache: f32[batch, 2, 32, 8]"]
    lines += ["%rows: f32[batch, 2, 32, 8] = partc.UpdateState(%cache, %k, %position)"]
    lines += [
        "%a: f32[batch, 2, sequence, 8] = partc.Attention(%k, %rows, %rows, %position) {causal = 1, scale = 0.5}"
    ]
    lines += ["output %a"]
    compiled = Compiled(module_of(lines, tmp_path, "tvm", 1), tmp_path / "build")
    assert load_role(tmp_path / "build" / "devices" / "phone").engine.chunked_prefill
    k = np.random.default_rng(0).standard_normal((1, 2, MAX, 8), np.float32)

    def step(begin: int, end: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        inputs = {"k": k[:, :, begin:end], "position": np.array([begin])}
        return compiled.run(inputs, {"batch": 1, "sequence": end - begin})["a"]

    compiled.reset(1)
    whole = step(0, MAX)
    compiled.reset(1)
    parts = [step(begin, end) for begin, end in ((0, 5), (5, 8), (8, MAX - 1), (MAX - 1, MAX))]
    np.testing.assert_allclose(np.concatenate(parts, axis=2), whole, atol=1e-6)
