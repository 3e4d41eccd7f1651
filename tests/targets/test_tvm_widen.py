"""Half precision on the tvm target: what lies in memory keeps its type, everything is computed in float32."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from partc.ir.graph import Graph, Node, Weight
from partc.ir.types import BY_SHORT, HALF
from partc.ir.weights import print_expr
from targets.tvm.specialise import Entry, specialise
from targets.tvm.widen import widen
from tests.targets.compiled_steps import MAX, Compiled, module_of, write_weights

pytestmark = pytest.mark.tvm
DEPTH = 4096
HEADS, SIZE = 2, 16
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7}
"""The distance from 1 to the next number."""

LAYER = """\
input %ids: i64[batch, sequence]
input %x: T[batch, sequence, 8]
weight %table = T[40, 8] from "m.safetensors"#"table"
weight %w = T[8, 32] from "m.safetensors"#"w"
weight %scale = T[32] from "m.safetensors"#"scale"
weight %kernel = T[4, 32, 1] from "m.safetensors"#"kernel"
%rows: T[batch, sequence, 8] = Gather(%table, %ids)
%sum: T[batch, sequence, 8] = Add(%x, %rows)
%wide: f32[batch, sequence, 8] = Cast(%sum) {to = 1}
%twice: f32[batch, sequence, 8] = Add(%wide, %wide)
%back: T[batch, sequence, 8] = Cast(%twice) {to = N}
%product: T[batch, sequence, 32] = MatMul(%back, %w)
%scaled: T[batch, sequence, 32] = Mul(%product, %scale)
%turned: T[batch, 32, sequence] = Transpose(%scaled) {perm = [0, 2, 1]}
%y: T[batch, 4, sequence] = Conv(%turned, %kernel)
output %y"""


def graph_of(short: str, folder: Path) -> Graph:
    text = LAYER.replace("T[", f"{short}[").replace("= N", f"= {BY_SHORT[short].onnx}")
    module = module_of(text.splitlines(), folder, "tvm", 1)
    return specialise(module.graph, module.info, Entry(1, 4))


def nodes_of(graph: Graph, op: str) -> list[Node]:
    return [node for node in graph.nodes if node.op == op]


@pytest.mark.parametrize("short", sorted(HALF))
def test_what_lies_in_memory_keeps_its_type(short: str, tmp_path: Path) -> None:
    graph = graph_of(short, tmp_path)
    widen(graph)
    weights = {weight.name: weight for weight in graph.weights()}
    assert {name: weight.dtype for name, weight in weights.items()} == {
        "table": short, "w": short, "scale.f32": "f32", "kernel": short,
    }  # fmt: skip
    source = weights["scale.f32"].source
    assert source is not None and print_expr(source).endswith("|> cast(f32)")
    (product,) = nodes_of(graph, "MatMul")
    assert [value.dtype for value in (*product.operands, *product.outputs)] == ["f32", short, "f32"]
    (output,) = graph.outputs
    assert (graph.inputs[1].dtype, output.dtype) == (short, short)


@pytest.mark.parametrize("short", sorted(HALF))
def test_the_rest_is_computed_in_float32(short: str, tmp_path: Path) -> None:
    graph = graph_of(short, tmp_path)
    widen(graph)
    for node in graph.nodes:
        if node.op not in ("Cast", "Gather"):
            made = [value for value in node.operands if not isinstance(value, Weight)]
            assert not {value.dtype for value in (*made, *node.outputs)} & HALF, node.op
    casts = [(cast.operand(0).name, cast.outputs[0].dtype) for cast in nodes_of(graph, "Cast")]
    of_sum = {"f16": ["sum.whole"], "bf16": []}[short]
    widened = {name for name, dtype in casts if dtype == "f32"}
    assert widened == {"kernel", "rows.half", "x", *(f"{name}.f16" for name in of_sum)}
    assert [name for name, dtype in casts if dtype != "f32"] == [*of_sum, "y"], "nothing else is rounded"


def test_a_graph_in_float32_stays_as_it_is(tmp_path: Path) -> None:
    graph = graph_of("f16", tmp_path)
    for value in graph.values():
        value.dtype = "f32" if value.dtype in HALF else value.dtype
    nodes = list(graph.nodes)
    widen(graph)
    assert graph.nodes == nodes


@pytest.mark.parametrize("short", sorted(HALF))
def test_sums_keep_what_16_bits_would_lose(short: str, tmp_path: Path) -> None:
    """Ones added up in float16 stop growing at 2048, in bfloat16 at 256."""
    lines = f"""\
input %x: {short}[batch, sequence, {DEPTH}]
weight %w = {short}[{DEPTH}, 32] from "m.safetensors"#"w" |> cast({short})
%y: {short}[batch, sequence, 32] = MatMul(%x, %w)
output %y""".splitlines()
    dtype = BY_SHORT[short].numpy
    write_weights(tmp_path, {"w": np.ones((DEPTH, 32), np.float32)})
    compiled = Compiled(module_of(lines, tmp_path, "tvm", 1), tmp_path / "build")
    for rows in (1, 5):
        compiled.reset(1)
        x = np.ones((1, rows, DEPTH), dtype).view(BY_SHORT[short].held)
        found = compiled.run({"x": x}, {"batch": 1, "sequence": rows})["y"]
        np.testing.assert_array_equal(found.view(dtype).astype(np.float32), np.full((1, rows, 32), DEPTH))


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("short", sorted(HALF))
def test_a_residual_is_what_a_model_that_is_cut_there_sends(short: str, tmp_path: Path) -> None:
    kind = f"{short}[batch, sequence, 8]"
    head = [f"input %x: {kind}", f'weight %w = {short}[8, 8] from "m.safetensors"#"w" |> cast({short})']
    layers = [
        f"%p{n}: {kind} = MatMul(%{x}, %w)\n%r{n}: {kind} = Add(%{x}, %p{n})".split("\n")
        for n, x in enumerate(("x", "r0"))
    ]
    write_weights(tmp_path, {"w": np.random.default_rng(5).standard_normal((8, 8)).astype(np.float32)})
    graphs = {
        "whole": [*head, *layers[0], *layers[1], "output %r1"],
        "first": [*head, *layers[0], "output %r0"],
        "second": [line.replace("%x", "%r0") for line in head] + [*layers[1], "output %r1"],
    }
    x = np.random.default_rng(6).standard_normal((1, 3, 8)).astype(BY_SHORT[short].numpy)
    found = {"x": x.view(BY_SHORT[short].held)}
    for name, lines in graphs.items():
        compiled = Compiled(module_of(lines, tmp_path, "tvm", 1), tmp_path / name)
        compiled.reset(1)
        found[name] = compiled.run(
            {"x": found["x"], "r0": found.get("first", x)}, {"batch": 1, "sequence": 3}
        )["r0" if name == "first" else "r1"]
    np.testing.assert_array_equal(found["second"], found["whole"])


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("short", sorted(HALF))
def test_attention_over_a_cache_of_16_bits(short: str, tmp_path: Path) -> None:
    kind = f"{short}[batch, {HEADS}, sequence, {SIZE}]"
    cache = f"{short}[batch, {HEADS}, {MAX}, {SIZE}]"
    lines = f"""\
input %q: {kind}
input %k: {kind}
input %v: {kind}
input %position: i64[batch]
state %keys: {cache}
state %values: {cache}
%k.all: {cache} = partc.UpdateState(%keys, %k, %position)
%v.all: {cache} = partc.UpdateState(%values, %v, %position)
%y: {kind} = partc.Attention(%q, %k.all, %v.all, %position) {{scale = 0.25, causal = 1}}
output %y""".splitlines()
    write_weights(tmp_path, {"unused": np.zeros(1, np.float32)})
    compiled = Compiled(module_of(lines, tmp_path, "tvm", 1), tmp_path / "build")
    compiled.reset(1)
    dtype, held = BY_SHORT[short].numpy, BY_SHORT[short].held
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, HEADS, 6, SIZE)).astype(dtype) for _ in range(3))
    found = []
    for begin, end in ((0, 5), (5, 6)):
        part = {name: x[:, :, begin:end].view(held) for name, x in (("q", q), ("k", k), ("v", v))}
        step = compiled.run({**part, "position": np.array([begin])}, {"batch": 1, "sequence": end - begin})
        found.append(step["y"].view(dtype))
    wide = [x.astype(np.float64) for x in (q, k, v)]
    expected = attended(*wide)
    error = np.abs(np.concatenate(found, 2).astype(np.float64) - expected).max()
    assert error <= 2 * EPSILON[short] * np.abs(expected).max()


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention in float64."""
    scores = np.where(np.tril(np.ones((6, 6), bool)), 0.25 * q @ k.swapaxes(2, 3), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found: np.ndarray = weights / weights.sum(-1, keepdims=True) @ v
    return found


@pytest.mark.parametrize("short", sorted(HALF))
def test_sums_of_the_largest_numbers(short: str, tmp_path: Path) -> None:
    """Masks are such numbers; what stands beside them is rounded as always, infinities and NaN stay."""
    kind = f"{short}[batch, sequence, 6]"
    lines = [f"input %x: {kind}", f"input %m: {kind}", f"%y: {kind} = Add(%x, %m)", f"%z: {kind} = Neg(%y)"]
    compiled = Compiled(module_of([*lines, "output %z"], tmp_path, "tvm", 1), tmp_path / "build")
    dtype, held = BY_SHORT[short].numpy, BY_SHORT[short].held
    most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    x = np.array([1, -1, 3.14, 2, 0, np.nan], dtype).reshape(1, 1, 6)
    m = np.array([most, -most, 100.3, -np.inf, np.inf, 1], dtype).reshape(1, 1, 6)
    found = compiled.run({"x": x.view(held), "m": m.view(held)}, {"batch": 1, "sequence": 1})["z"]
    np.testing.assert_array_equal(found.view(dtype).astype(np.float32), -(x + m).astype(np.float32))
