"""Two equal layers, fused for a processor, through our own pipeline: what becomes of the nodes, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from partc.ir.graph import Attribute, Constant, Graph, Input, Node, State, Value, Weight
from tests.targets.numpy_attention import Array, attention
from tests.targets.virtual_machine import machine_pipeline

pytestmark = pytest.mark.tvm
tvm = pytest.importorskip("tvm")

ROWS, WIDTH, HEADS, INNER, KEYS = 3, 32, 2, 48, 7
SHAPES = {
    "q": (WIDTH, WIDTH),
    "k": (WIDTH, WIDTH),
    "gate": (WIDTH, INNER),
    "up": (WIDTH, INNER),
    "down": (INNER, WIDTH),
}


class Writer:
    """Nodes one after the other; every value is float32 unless said otherwise."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.weights: dict[str, Weight] = {}

    def op(
        self, op: str, shape: tuple[int, ...], *inputs: Value, scope: str = "", **attributes: Attribute
    ) -> Value:
        output = Value(f"v{len(self.nodes)}", "f32", shape)
        self.nodes.append(Node(op, list(inputs), [output], attributes, scope))
        return output

    def weight(self, name: str, shape: tuple[int, ...]) -> Weight:
        self.weights[name] = Weight(name, "f32", shape)
        return self.weights[name]

    def layer(self, number: int, x: Value, position: Value) -> Value:
        """What is kept as keys is kept as values too; the residual is around all of it."""
        scope, size = f"layers.{number}", WIDTH // HEADS
        w = {name: self.weight(f"{scope}.{name}", shape) for name, shape in SHAPES.items()}
        flat, inner, by_head = (1, ROWS, WIDTH), (1, ROWS, INNER), (1, HEADS, ROWS, size)
        q, k = (self.op("MatMul", flat, x, w[name], scope=scope) for name in "qk")
        q, k = (self.swapped(self.reshaped((1, ROWS, HEADS, size), v, scope), by_head, scope) for v in (q, k))
        whole = (1, HEADS, KEYS, size)
        keys, values = (
            self.op(
                "partc.UpdateState", whole, State(f"{name}.{number}", "f32", whole), k, position, scope=scope
            )
            for name in ("keys", "values")
        )
        seen = self.op(
            "partc.Attention", by_head, q, keys, values, position, scope=scope, causal=1, scale=0.25
        )
        mixed = self.reshaped(flat, self.swapped(seen, (1, ROWS, HEADS, size), scope), scope)
        gate = self.op("MatMul", inner, mixed, w["gate"], scope=scope)
        gate = self.op("Swish", inner, gate, scope=scope, alpha=1.0)
        up = self.op("MatMul", inner, mixed, w["up"], scope=scope)
        both = self.op("Mul", inner, up, gate, scope=scope)
        return self.op("Add", flat, x, self.op("MatMul", flat, both, w["down"], scope=scope), scope=scope)

    def reshaped(self, shape: tuple[int, ...], value: Value, scope: str) -> Value:
        sizes = Constant("sizes", "i64", (len(shape),), array=np.array(shape))
        return self.op("Reshape", shape, value, sizes, scope=scope)

    def swapped(self, value: Value, shape: tuple[int, ...], scope: str) -> Value:
        return self.op("Transpose", shape, value, scope=scope, perm=(0, 2, 1, 3))


def two_layers() -> Graph:
    w = Writer()
    x, position = Input("x", "f32", (1, ROWS, WIDTH)), Input("position", "i64", (1,))
    middle = w.layer(0, x, position)
    return Graph("two", [x, position], [w.layer(1, middle, position)], w.nodes, 24)


def fused() -> tuple[Graph, frozenset[str]]:
    from targets.tvm.fuse import fuse_for_processor
    from targets.tvm.panels import lay_out_keys

    graph = two_layers()
    packed = frozenset(weight.name for weight in graph.weights())
    assert lay_out_keys([graph]) == {"keys.0", "keys.1"}
    fuse_for_processor(graph, packed)
    return graph, packed


def test_what_the_nodes_become() -> None:
    graph, _ = fused()
    ops = [
        "tvm.Products",
        "Reshape",
        "Transpose",
        "Reshape",
        "tvm.UpdatePanels",
        "partc.UpdateState",
        "tvm.Attention",
        "Reshape",
    ]
    assert [node.op for node in graph.nodes] == 2 * [*ops, "tvm.GatedProduct", "tvm.ProductPlus"]
    turned = ("tvm.UpdatePanels", "partc.UpdateState", "tvm.Attention")
    assert all(node.attributes["rows_first"] == 1 for node in graph.nodes if node.op in turned)


def test_nothing_is_joined_whose_parts_others_read() -> None:
    from targets.tvm.fuse import fuse_for_processor

    graph = two_layers()
    gate = next(node for node in graph.nodes if node.op == "Swish")
    graph.outputs.append(gate.outputs[0])
    fuse_for_processor(graph, frozenset(weight.name for weight in graph.weights()))
    assert [node.op for node in graph.nodes].count("tvm.GatedProduct") == 1


GATES: list[tuple[str, dict[str, Attribute], str | None]] = [
    ("Swish", {}, "swish"),
    ("Swish", {"alpha": 1.702}, None),
    ("Gelu", {}, "gelu"),
    ("Gelu", {"approximate": "tanh"}, "gelu_tanh"),
]


@pytest.mark.parametrize(("op", "attributes", "name"), GATES)
def test_what_a_gated_product_computes(op: str, attributes: dict[str, Attribute], name: str | None) -> None:
    from targets.tvm.fuse import fuse_for_processor

    graph = two_layers()
    for node in graph.nodes:
        if node.op == "Swish":
            node.op, node.attributes = op, attributes
    fuse_for_processor(graph, frozenset(weight.name for weight in graph.weights()))
    gated = [node.attributes["activation"] for node in graph.nodes if node.op == "tvm.GatedProduct"]
    assert gated == ([name] * 2 if name else [])


def test_products_without_packed_weights_stay() -> None:
    from targets.tvm.fuse import fuse_for_processor

    graph = two_layers()
    fuse_for_processor(graph, frozenset())
    assert {node.op for node in graph.nodes if node.op.startswith("tvm.")} == {"tvm.Gated"}


def test_equal_layers_are_one_function_and_compute_what_they_should() -> None:
    from tvm import relax

    from targets.tvm.builder import ModuleBuilder
    from targets.tvm.kernels import cpu_operators
    from targets.tvm.machine import machine_of
    from targets.tvm.operators import OPERATORS

    graph, packed = fused()
    emitters = {**OPERATORS, **cpu_operators(machine_of("x86_64", "", (), "cpu", ""))}
    builder = ModuleBuilder(emitters, packed)
    weights = {weight.name: numbers(*weight.shape) for weight in graph.weights()}  # type: ignore[misc]
    builder.add("step", graph, [*graph.inputs, *graph.states(), *graph.weights()])
    module = builder.finish()
    functions = [
        name.name_hint for name, made in module.functions.items() if isinstance(made, relax.Function)
    ]
    assert sorted(functions) == ["block_0", "step"]

    library = relax.build(module, target="llvm", relax_pipeline=machine_pipeline())
    machine = relax.VirtualMachine(library, tvm.cpu())
    x, position = numbers(1, ROWS, WIDTH), np.array([2])
    states = [tvm.runtime.tensor(np.zeros(state.shape, np.float32)) for state in graph.states()]  # type: ignore[type-var]
    given = [tvm.runtime.tensor(array) for array in (x, position)]
    result = machine["step"](
        *given, *states, *(tvm.runtime.tensor(panels(weights[name])) for name in weights)
    )
    expected, rows = reference(x, weights)
    np.testing.assert_allclose(result[0].numpy(), expected, atol=1e-3)
    for number, new in enumerate(rows):
        keys, values = (state.numpy() for state in states[2 * number : 2 * number + 2])
        for held in (keys[:, :, 0].swapaxes(2, 3), values):
            np.testing.assert_allclose(held[:, :, 2 : 2 + ROWS], new, atol=1e-4)
            assert not held[:, :, 2 + ROWS :].any()


def test_what_a_kernel_changes_in_place_is_called_by_every_layer_with_its_own_state() -> None:
    from targets.tvm.blocks import blocks_of

    graph, _ = fused()
    first, second = blocks_of(graph)
    assert first.signature == second.signature
    assert [value.name for value in second.inputs if isinstance(value, State)] == ["keys.1", "values.1"]


def test_layers_that_differ_in_a_large_constant_are_two() -> None:
    from targets.tvm.blocks import blocks_of

    w = Writer()
    x = value = Input("x", "f32", (3000,))
    for number in range(2):
        table = np.zeros(3000, np.float32)
        table[1500] = number
        attribute: Any = table
        value = w.op("Odd", (3000,), value, scope=f"layers.{number}", table=attribute)  # type: ignore[assignment]
    first, second = blocks_of(Graph("two", [x], [value], w.nodes, 24))
    assert first.signature != second.signature


def reference(x: Array, weights: Mapping[str, Array]) -> tuple[Array, list[Array]]:
    """The result, and the rows that the caches of both layers gain; those before them are zeros."""
    gained = []
    for number in range(2):
        w = {name: weights[f"layers.{number}.{name}"] for name in SHAPES}
        q, k = ((x @ w[name]).reshape(1, ROWS, HEADS, -1).transpose(0, 2, 1, 3) for name in "qk")
        cache = np.concatenate([np.zeros_like(k[:, :, :2]), k], axis=2)
        mixed = attention(q, cache, cache, np.array([2]), scale=0.25).transpose(0, 2, 1, 3).reshape(x.shape)
        gate = mixed @ w["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (mixed @ w["up"])) @ w["down"]
        gained.append(k)
    return x, gained


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32) / 8


def panels(weight: Array) -> Array:
    depth, columns = weight.shape
    return np.ascontiguousarray(weight.reshape(depth, columns // 16, 16).transpose(1, 0, 2))
