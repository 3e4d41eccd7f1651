"""Operators around convolutions and recurrences, fused for a processor: activations, turns, gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from partc.ir.graph import Attribute, Graph, Input, Node, State, Value
from partc.ir.operators import CAUSAL_CONV
from tests.targets.numpy_attention import Array
from tests.targets.virtual_machine import machine_pipeline

pytestmark = pytest.mark.tvm
tvm = pytest.importorskip("tvm")

ROWS, WIDTH, TAPS = 3, 32, 4
FLAT, TURNED = (1, ROWS, WIDTH), (1, WIDTH, ROWS)


def convolution(back: tuple[int, ...] = (0, 2, 1), seen: bool = False) -> Graph:
    """z · swish(convolution of x), the activation between two turns; `seen`: what is convolved is an output, too."""
    x, z, length = Input("x", "f32", FLAT), Input("z", "f32", FLAT), Input("length", "i64", (1,))
    weight, state = Input("weight", "f32", (WIDTH, TAPS)), State("rows", "f32", (1, TAPS - 1, WIDTH))
    nodes: list[Node] = []

    def op(name: str, shapes: list[tuple[int, ...]], *inputs: Value, **attributes: Attribute) -> Value:
        outputs = [Value(f"v{len(nodes)}.{place}", "f32", shape) for place, shape in enumerate(shapes)]
        nodes.append(Node(name, list(inputs), outputs, attributes))
        return outputs[0]

    out = op(CAUSAL_CONV.name, [FLAT, (1, TAPS - 1, WIDTH)], state, x, weight, length)
    turned = op("Transpose", [TURNED], out, perm=(0, 2, 1))
    activated = op("Swish", [TURNED], turned, alpha=1.0)
    last = op("Transpose", [tuple(TURNED[axis] for axis in back)], activated, perm=back)
    result = op("Mul", [FLAT], z, last) if back == (0, 2, 1) else last
    return Graph("one", [x, z, length, weight], [result, *([out] if seen else [])], nodes, 24)


def fused(graph: Graph) -> list[str]:
    from targets.tvm.fuse import fuse_for_processor

    fuse_for_processor(graph, frozenset())
    return [node.op for node in graph.nodes]


def test_turns_go_and_the_activation_has_the_gate() -> None:
    assert fused(convolution()) == [CAUSAL_CONV.name, "tvm.Gated"]


def test_other_turns_stay() -> None:
    graph = convolution(back=(2, 1, 0))
    assert fused(graph) == [CAUSAL_CONV.name, "Transpose", "Swish", "Transpose"]


def test_a_convolution_computes_its_activation_where_nobody_else_reads_it() -> None:
    graph = convolution()
    (gate,) = [node for node in graph.nodes if node.op == "Mul"]
    graph.nodes.remove(gate)
    graph.outputs = [gate.inputs[1]]  # type: ignore[list-item]
    assert fused(graph) == [CAUSAL_CONV.name]
    assert graph.nodes[0].attributes["activation"] == "swish"
    assert graph.nodes[0].outputs[0] is graph.outputs[0]
    assert graph.outputs[0].producer is graph.nodes[0]

    read = convolution(seen=True)
    assert "activation" not in {**next(iter(read.nodes)).attributes}
    assert fused(read) == [CAUSAL_CONV.name, "tvm.Gated"]
    assert "activation" not in read.nodes[0].attributes


def test_gates_of_other_shapes_stay() -> None:
    graph = convolution()
    graph.inputs[1].shape = (1, 1, WIDTH)
    assert fused(graph) == [CAUSAL_CONV.name, "Mul"]
    assert graph.nodes[0].attributes["activation"] == "swish"


@pytest.mark.parametrize("gate", [True, False])
def test_the_numbers(gate: bool) -> None:
    graph = convolution()
    if not gate:
        graph.inputs[1].shape = (1, 1, WIDTH)
    fused(graph)
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"length": np.array([ROWS - 1])}
    for value in (*graph.inputs, *graph.states()):
        shape: Any = value.shape
        arrays.setdefault(value.name, rng.standard_normal(shape, dtype=np.float32))
    given = [arrays[name] for name in ("rows", "x", "weight", "length")]
    results: list[Any] = CAUSAL_CONV.reference([*given, None], {})
    plain, last = results
    (found, state) = run(graph, arrays)
    np.testing.assert_allclose(found, arrays["z"] * plain / (1 + np.exp(-plain)), atol=1e-5)
    np.testing.assert_array_equal(state, last)
    assert np.abs(found - arrays["z"] * plain).max() > 0.1


def run(graph: Graph, arrays: dict[str, Array]) -> tuple[Array, Array]:
    """The result, and the state behind it."""
    from tvm import relax

    from targets.tvm.builder import ModuleBuilder
    from targets.tvm.kernels import cpu_operators
    from targets.tvm.machine import machine_of
    from targets.tvm.operators import OPERATORS

    emitters = {**OPERATORS, **cpu_operators(machine_of("x86_64", "", (), "cpu", ""))}
    builder = ModuleBuilder(emitters, frozenset())
    parameters = [*graph.inputs, *graph.states()]
    builder.add("step", graph, parameters)
    library = relax.build(builder.finish(), target="llvm", relax_pipeline=machine_pipeline())
    given: dict[str, Any] = {one.name: tvm.runtime.tensor(arrays[one.name]) for one in parameters}
    (result,) = relax.VirtualMachine(library, tvm.cpu())["step"](*given.values())
    return result.numpy(), given["rows"].numpy()
