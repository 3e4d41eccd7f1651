"""The graphs that are measured: test models for the figures of a device, and the sub-modules of a model.

| graph | is | gives |
| --- | --- | --- |
| `probe_flops` | a product of two square matrices | FLOP/s (LinguaLinked 3.1's test model) |
| `probe_stream` | a vector times a matrix larger than caches | memory bandwidth |
| `probe_call_1`, `probe_call_9` | a chain of one or nine small products | what a call costs by itself |
| `probe_touch`, `probe_payload`, `probe_head` | the rings of `partc.runtime.measure.ring` | cost of hops |
| `sub_K` | sub-module K of a model, shared nodes as inputs | its time, with a call's overhead |
| `sub_K_xN` | N sub-modules from K on, as a device would have them | what they take together |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partc.format.dims import Dim
from partc.format.safetensors import Entry, write_safetensors
from partc.ir.graph import Constant, Graph, Input, ModelInfo, Module, Node, State, Submodule, Value, Weight
from partc.ir.weights import Leaf, Step
from partc.runtime.measure.ring import HEAD, LOGITS, PAYLOAD, PROMPT, SENT, TOUCH, TOUCHED

FLOPS, STREAM, CALL = "probe_flops", "probe_stream", ("probe_call_1", "probe_call_9")
CHAIN = (1, 9)
"""Products in the two graphs of `CALL`."""
PAYLOAD_FLOATS = 256
"""Numbers that cross a measured link for every token of a prompt: 1 KiB."""
LONGEST_PROMPT = 4096
"""Tokens of the longest prompt in a ring: 4 MiB cross a link."""
VOCABULARY = 8
"""Tokens that the models of the rings know."""
_FILE, _KEY = "probe.safetensors", "numbers"
_OPSET = 20


@dataclass(frozen=True)
class ProbeSizes:
    """Sizes of the test models; multiples of 64."""

    square: int = 1024
    """Rows and columns of the square product."""
    rows: int = 4096
    """Rows of the streamed matrix, f32, which has more bytes than any cache."""
    columns: int = 4096
    touch_rows: int = 4096
    """Rows of the same matrix that a device of the ring reads in a step."""
    link: int = 448
    """Rows and columns of a product of the chains."""

    @property
    def stream_bytes(self) -> int:
        """Bytes of the streamed matrix."""
        return self.rows * self.columns * 4


QUICK = ProbeSizes(square=256, rows=1024, columns=1024, touch_rows=256, link=64)
"""Small enough for a test or a first look; the bandwidth is that of a cache."""


def write_numbers(folder: Path, sizes: ProbeSizes) -> ModelInfo:
    """Write the checkpoint of the test models; what their graphs belong to."""
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((sizes.rows, sizes.columns), np.float32) / np.float32(sizes.columns**0.5)
    entry = Entry(_KEY, "f32", numbers.shape)
    write_safetensors(
        folder / _FILE, [entry], lambda names: [(name, numbers) for name in names], lambda *_: None
    )
    largest = {"batch": 1, "sequence": LONGEST_PROMPT}
    return ModelInfo("probe", "text-generation", folder=str(folder), max_requests=1, dims=largest)


def probe_graphs(sizes: ProbeSizes) -> list[Graph]:
    """All test models."""
    return [
        _products(FLOPS, sizes.square, [(0, sizes.square)], sizes.square),
        _products(STREAM, 1, [(0, sizes.rows)], sizes.columns),
        *(
            _products(name, 1, [(k * sizes.link, (k + 1) * sizes.link) for k in range(count)], sizes.link)
            for name, count in zip(CALL, CHAIN, strict=True)
        ),
        _touch(sizes),
        _payload(),
        _head(),
    ]


def graph_name(index: int, count: int) -> str:
    """The graph of `count` sub-modules, the first of which is `index`."""
    return f"sub_{index}" if count == 1 else f"sub_{index}_x{count}"


def submodules_graph(module: Module, indices: Sequence[int]) -> Graph:
    """Some sub-modules in one graph: what they read of other nodes are inputs, what others read are outputs.

    Shared nodes (rotary tables, masks) count as others: a device computes them once a step however many
    sub-modules it has. O(V + E).
    """
    nodes = [node for index in indices for node in (module.submodules or [])[index].nodes]
    return extract(graph_name(indices[0], len(indices)), module.graph, nodes)


def extract(name: str, whole: Graph, nodes: Sequence[Node]) -> Graph:
    """A graph of clones of `nodes`; names stay."""
    inside = set(nodes)
    clones: dict[Value, Value] = {}
    for value in dict.fromkeys(value for node in nodes for value in node.operands):
        if value.producer not in inside:
            is_leaf = isinstance(value, Weight | Constant | State)
            clones[value] = copy(value) if is_leaf else Input(value.name, value.dtype, value.shape)
    made = []
    for node in nodes:
        outputs = [copy(value) for value in node.outputs]
        clones.update(zip(node.outputs, outputs, strict=True))
        operands = [None if value is None else clones[value] for value in node.inputs]
        made.append(Node(node.op, operands, outputs, dict(node.attributes), node.scope))
    inputs = [value for value in clones.values() if isinstance(value, Input)]
    return Graph(name, inputs, [clones[v] for v in _seen_outside(whole, nodes)], made, whole.opset)


def _seen_outside(whole: Graph, nodes: Sequence[Node]) -> list[Value]:
    inside = set(nodes)
    readers = whole.consumers()
    results = set(whole.outputs)
    return [
        value
        for node in nodes
        for value in node.outputs
        if value in results or any(reader not in inside for reader in readers.get(value, ()))
    ]


def weight_bytes(graph: Graph) -> int:
    """Bytes of the weights and constants of a graph."""
    return sum(value.bytes({}) for value in graph.leaves() if not isinstance(value, State))


def model_bytes(submodules: Iterable[Submodule]) -> int:
    """Weights that one step reads, tied ones as often as they are read."""
    return sum(
        weight.bytes({})
        for submodule in submodules
        for weight in dict.fromkeys(
            v for node in submodule.nodes for v in node.operands if isinstance(v, Weight)
        )
    )


def _numbers(name: str, rows: tuple[int, int], columns: int) -> Weight:
    source = Step("slice", (1, 0, columns), Step("slice", (0, *rows), Leaf(_FILE, _KEY)))
    return Weight(name, "f32", (rows[1] - rows[0], columns), source=source)


def _products(name: str, height: int, rows: Sequence[tuple[int, int]], columns: int) -> Graph:
    """x[height, …] times one slice of the numbers after the other."""
    first = rows[0][1] - rows[0][0]
    given = Input(f"{name}.x", "f32", (height, first))
    nodes: list[Node] = []
    value: Value = given
    for k, part in enumerate(rows):
        product = Value(f"{name}.y{k}", "f32", (height, columns))
        nodes.append(Node("MatMul", [value, _numbers(f"{name}.w{k}", part, columns)], [product]))
        value = product
    return Graph(name, [given], [value], nodes, _OPSET)


def _touch(sizes: ProbeSizes) -> Graph:
    """`length`, spread to a vector, times as many weights as are to be read."""
    length = Input("length", "i64", ("batch",))
    row = _spread("probe.row", length, ("batch", sizes.touch_rows), (1,))
    product = Value(TOUCHED, "f32", ("batch", sizes.columns))
    weight = _numbers("probe.weights", (0, sizes.touch_rows), sizes.columns)
    return Graph(
        TOUCH, [length], [product], [*row, Node("MatMul", [row[-1].outputs[0], weight], [product])], _OPSET
    )


def _payload() -> Graph:
    """`input_ids`, each spread to a vector: what crosses the link."""
    prompt = Input(PROMPT, "i64", ("batch", "sequence"))
    nodes = _spread(SENT, prompt, ("batch", "sequence", PAYLOAD_FLOATS), (2,))
    return Graph(PAYLOAD, [prompt], [nodes[-1].outputs[0]], nodes, _OPSET)


def _head() -> Graph:
    """The largest of all that came, spread to logits: small, but nothing of the message is left out."""
    sent = Input(SENT, "f32", ("batch", "sequence", PAYLOAD_FLOATS))
    axes = Constant("probe.axes", "i64", (2,), array=np.array([1, 2], np.int64))
    most = Value("probe.most", "f32", ("batch", 1, 1))
    ones = Constant("probe.ones", "f32", (1, 1, VOCABULARY), array=np.ones((1, 1, VOCABULARY), np.float32))
    logits = Value(LOGITS, "f32", ("batch", 1, VOCABULARY))
    reduce = Node("ReduceMax", [sent, axes], [most], {"keepdims": 1})
    return Graph(HEAD, [sent], [logits], [reduce, Node("Mul", [most, ones], [logits])], _OPSET)


def _spread(name: str, value: Value, shape: tuple[Dim, ...], axis: tuple[int]) -> list[Node]:
    """Nodes that make an integer value a float one with one more axis, as long as `shape` says."""
    assert value.shape is not None
    count = shape[-1]
    assert isinstance(count, int)
    number = Value(f"{name}.number", "f32", value.shape)
    column = Value(f"{name}.column", "f32", (*value.shape, 1))
    axes = Constant(f"{name}.axes", "i64", (1,), array=np.array(axis, np.int64))
    ones = Constant(f"{name}.ones", "f32", (count,), array=np.ones(count, np.float32))
    return [
        Node("Cast", [value], [number], {"to": 1}),
        Node("Unsqueeze", [number, axes], [column]),
        Node("Mul", [column, ones], [Value(name, "f32", shape)]),
    ]
