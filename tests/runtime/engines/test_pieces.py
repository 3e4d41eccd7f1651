"""Pieces that come and go while others compute, and rows of all element types of states."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from partc.bundle.writer import write_bundle
from partc.format.dtypes import BY_SHORT, Array
from partc.format.role import Role, load_role
from partc.ir.text import parse_module
from partc.pipeline.registry import load_target
from partc.runtime.engines.contract import Engine, make_engine
from tests.runtime.engines.test_memory import resident

KINDS = [
    pytest.param("ort", marks=pytest.mark.ort),
    pytest.param("tvm", marks=pytest.mark.tvm),
]
HEADS, LENGTH, SIZE, WIDE = 2, 6, 4, 4096
RING = {"batch": 2, "sequence": LENGTH}
HEADER = (
    'partc-ir 1\nmodel {"name": "pieces", "task": "text-generation", "folder": "", "max_sequence": 6, "max_batch": 2,'
    ' "max_requests": 2, "dims": {"batch": 2, "sequence": 6}, "vocab_size": 9, "eos_token_ids": []}\n'
)


def graph(name: str, given: str, made: str, kind: str) -> str:
    rows, full = (f"{kind}[batch,{HEADS},{length},{SIZE}]" for length in ("sequence", LENGTH))
    turned = f"{kind}[batch,{LENGTH},{HEADS},{SIZE}]"
    return f"""graph {name} opset 24 {{
  input %{given}: {rows}
  input %position: i64[batch]
  state %cache.{name}: {full}
  %all: {full} = partc.UpdateState(%cache.{name}, %{given}, %position)
  %{made}: {turned} = Transpose(%all) {{perm=[0, 2, 1, 3]}}
  output %{made}
}}
"""


def pieces(folder: Path, target: str, kind: str = "f32") -> tuple[Role, Path]:
    """A device with part_0 and part_1, which write their inputs to a state and return it."""
    program = "run part_0 (x, position) -> (y)\nrun part_1 (x, position) -> (z)\nemit y, z"
    both = "".join(f"program {phase}\n{program}\nend\n" for phase in ("prefill", "decode"))
    graphs = graph("part_0", "x", "y", kind) + graph("part_1", "x", "z", kind)
    whole = graph("whole", "x", "y", kind)
    return written(f"{HEADER}{whole}part only target {target} {{\n{both}{graphs}}}\n", folder, target)


def written(text: str, folder: Path, target: str) -> tuple[Role, Path]:
    module = parse_module(text)
    for part in module.parts or ():
        part.graphs = load_target(target).lower(part.graphs, module.info)
    write_bundle(module, folder / "build")
    place = folder / "build" / "devices" / "only"
    return load_role(place), place


def step(engine: Engine, piece: str, slot: int, rows: Array, position: int) -> Array:
    """The whole state, [batch, HEADS, LENGTH, SIZE], once `rows` are in it."""
    dims = {"batch": len(rows), "sequence": rows.shape[2]}
    made = engine.run(piece, slot, [rows, np.full(len(rows), position)], dims)[0]
    return made.swapaxes(1, 2).copy()


def drawn(kind: str, rows: int, seed: int) -> Array:
    """[2, HEADS, rows, SIZE], any bits that are no NaN."""
    dtype = BY_SHORT[kind].held
    numbers = np.random.default_rng(seed).integers(0, 100, (2, HEADS, rows, SIZE))
    return numbers.astype(dtype)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        *(pytest.param("ort", kind, marks=pytest.mark.ort) for kind in ("f32", "f16", "bf16", "i8")),
        pytest.param("tvm", "f32", marks=pytest.mark.tvm),  # it computes with no other states
    ],
)
def test_rows_move_into_a_piece_that_was_just_loaded(tmp_path: Path, target: str, kind: str) -> None:
    """Bit for bit, and the other engine goes on as this one."""
    role, folder = pieces(tmp_path, target, kind)
    here, there = (make_engine(role, folder) for _ in range(2))
    here.load("part_0")
    here.reset(0, RING)
    step(here, "part_0", 0, drawn(kind, 3, seed=1), 0)
    there.load("part_0")
    there.reset(1, {"batch": 2, "sequence": 1})
    name = role.submodules["part_0"].states[0].name
    for row in range(2):
        rows = here.read_rows("part_0", 0, name, row, 0, 3)
        assert rows.dtype == BY_SHORT[kind].held
        assert rows.shape == (3, HEADS, SIZE)
        np.testing.assert_array_equal(rows, drawn(kind, 3, seed=1)[row].swapaxes(0, 1))
        there.write_rows("part_0", 1, name, row, 0, rows)
    later = drawn(kind, 1, seed=2)
    np.testing.assert_array_equal(step(there, "part_0", 1, later, 3), step(here, "part_0", 0, later, 3))


@pytest.mark.parametrize("target", KINDS)
def test_pieces_come_and_go_while_requests_begin_and_run(tmp_path: Path, target: str) -> None:
    """One thread begins requests and computes part_0, another one loads and releases part_1 all the time."""
    role, folder = pieces(tmp_path, target)
    engine = make_engine(role, folder)
    engine.load("part_0")
    done = threading.Event()

    def come_and_go() -> None:
        try:
            for _ in range(12):
                engine.load("part_1")
                time.sleep(0.001)
                engine.release("part_1")
        finally:
            done.set()

    with ThreadPoolExecutor(1) as worker:
        loading = worker.submit(come_and_go)
        for turn in itertools.count():
            rows = drawn("f32", 1 + turn % 4, seed=turn)[: 1 + turn % 2]
            engine.reset(turn % 2, {"batch": len(rows), "sequence": rows.shape[2]})
            found = step(engine, "part_0", turn % 2, rows, 0)
            np.testing.assert_array_equal(found[: len(rows), :, : rows.shape[2]], rows)
            assert not found[:, :, rows.shape[2] :].any()
            if done.is_set():
                break
        loading.result()
    assert turn > 2


@pytest.mark.parametrize("target", KINDS)
def test_a_piece_that_comes_has_the_sizes_of_the_request_that_began_meanwhile(
    tmp_path: Path, target: str
) -> None:
    role, folder = pieces(tmp_path, target)
    engine = make_engine(role, folder)
    engine.reset(0, {"batch": 1, "sequence": 1})
    engine.load("part_1")
    rows = drawn("f32", 2, seed=5)[:1]
    np.testing.assert_array_equal(step(engine, "part_1", 0, rows, 1)[:, :, 1:3], rows)
    engine.reset(0, {"batch": 2, "sequence": 1})
    both = drawn("f32", 2, seed=6)
    np.testing.assert_array_equal(step(engine, "part_1", 0, both, 1)[:, :, 1:3], both)


@pytest.mark.parametrize("target", KINDS)
def test_a_piece_that_goes_gives_its_memory_back(tmp_path: Path, target: str) -> None:
    """States that requests have written, and weights that were read."""
    role, folder = weighty(tmp_path, target)
    engine = make_engine(role, folder)
    before = resident("VmRSS")
    for _ in range(3):
        engine.load("part_0")
        engine.reset(0, {"batch": 1, "sequence": 1})
        x = np.ones((1, 1, WIDE), np.float32)
        (y,) = engine.run("part_0", 0, [x], {"batch": 1, "sequence": 1})
        np.testing.assert_array_equal(y, np.full((1, 1, WIDE), WIDE, np.float32))
        held = resident("VmRSS") - before
        assert held > WIDE * WIDE * 4 * 0.9
        engine.release("part_0")
        assert resident("VmRSS") - before < held / 3


def weighty(folder: Path, target: str) -> tuple[Role, Path]:
    """A device whose one piece multiplies by a matrix of ones, 64 MiB."""
    ones = np.ones((WIDE, WIDE), np.float32)
    save_file({"w": ones}, folder / "model.safetensors")
    body = f"""
  input %x: f32[batch,sequence,{WIDE}]
  weight %w = f32[{WIDE},{WIDE}] from "model.safetensors"#"w"
  %y: f32[batch,sequence,{WIDE}] = MatMul(%x, %w)
  output %y
}}
"""
    program = "program prefill\nrun part_0 (x) -> (y)\nemit y\nend\n"
    header = HEADER.replace('"folder": ""', f'"folder": "{folder}"')
    part = f"part only target {target} {{\n{program}graph part_0 opset 24 {{{body}}}\n"
    return written(f"{header}graph whole opset 24 {{{body}{part}", folder, target)
