"""Size inference: element type and symbolic shape of every value, and contents of small tensors of sizes.

Every node is run on samples (`partc.ir.samples`): `partc.ir.node_sizes` says what comes of it in each, sizes
and small tensors whose contents follow from sizes and constants alone (targets of Reshape, bounds of Slice).
Expressions in the symbols are fitted to the sizes that come out.

Cost: nodes with the same operator, attributes and operand sizes are inferred once, so repeated layers are
free; O(nodes) dictionary look-ups beside about 30 µs a distinct node and sample.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from partc.format.dims import Dim, Shape, symbols
from partc.ir.graph import Attribute, Constant, Graph, ModelInfo, Node, State, Value
from partc.ir.node_sizes import MAX_CONTENT_ELEMENTS, Fact, UnknownSizeError, node_facts, typed_sizes
from partc.ir.operators import OPERATORS
from partc.ir.operators.operator import MismatchError, Sizes
from partc.ir.samples import Samples
from partc.ir.types import BY_NUMPY
from partc.ir.weights import Array

_SCALES = ((1, 0), (1, 6), (1, 30), (1, 210), (2, 0), (8, 0), (64, 0))
"""(factor, addend) of samples: small sizes; should a node refuse them, larger ones; then multiples."""


@dataclass(eq=False)
class Inferred:
    """The answer for one graph."""

    samples: Samples
    facts: dict[Value, Fact] = field(default_factory=dict)
    failures: dict[Node, str] = field(default_factory=dict)
    """Nodes without an answer of their own → why."""

    def shape(self, value: Value) -> Shape | None:
        """The symbolic shape, None where it is unknown."""
        fact = self.facts.get(value)
        return None if fact is None else _symbolic(fact.shapes, self.samples)

    def contents(self, value: Value) -> list[Dim] | None:
        """The elements of a small tensor of integers as sizes, flat; None where they are not known."""
        fact = self.facts.get(value)
        if fact is None or fact.contents is None or fact.dtype not in ("i64", "i32"):
            return None
        if not fact.has_one_shape:
            return None
        columns = zip(*(array.reshape(-1).tolist() for array in fact.contents), strict=True)
        dims = [self.samples.dim(column) for column in columns]
        return None if None in dims else [dim for dim in dims if dim is not None]

    def constant(self, value: Value) -> Array | None:
        """The contents of a small tensor that does not depend on any size."""
        fact = self.facts.get(value)
        return None if fact is None else fact.constant


class SizeInference:
    """Infers graphs with the same symbols; remembers nodes, so that a second sweep is cheap."""

    def __init__(self, graph: Graph, info: ModelInfo) -> None:
        """Prepare samples for the symbols of the graph's inputs and states, which are at most `info.dims`."""
        given = [*graph.inputs, *graph.states()]
        names = dict.fromkeys(s for v in given for dim in v.shape or () for s in sorted(symbols(dim)))
        self._engines = [
            _Engine(Samples(tuple(names), info.dims, scale, offset), graph.opset, info.max_sequence)
            for scale, offset in _SCALES
        ]

    def infer(self, graph: Graph) -> Inferred:
        """Sizes of all values that can be known; leaves the graph as it is."""
        found: list[Inferred] = []
        for engine in self._engines:
            found.append(engine.infer(graph))
            if not found[-1].failures or not engine.samples.symbols:
                break
        return min(found, key=lambda answer: len(answer.failures))


def assign_sizes(graph: Graph, inferred: Inferred) -> bool:
    """Write what was inferred; what the exporter gave stays where nothing was. True if any value changed."""
    changed = False
    for value in graph.values():
        fact, shape = inferred.facts.get(value), inferred.shape(value)
        new = (fact.dtype if fact else value.dtype, shape if shape is not None else value.shape)
        changed |= new != (value.dtype, value.shape)
        value.dtype, value.shape = new
    return changed


def _symbolic(shapes: Sequence[Sizes], samples: Samples) -> Shape | None:
    dims = [samples.dim(column) for column in zip(*shapes, strict=True)]
    return None if None in dims else tuple(dim for dim in dims if dim is not None)


class _Engine:
    """One set of samples with its cache."""

    def __init__(self, samples: Samples, opset: int, max_sequence: int) -> None:
        self.samples = samples
        self._max_sequence = max_sequence
        self._opset = opset
        self._facts: dict[object, Fact] = {}
        self._nodes: dict[object, list[Fact] | str] = {}
        self._count = len(samples.bindings)

    def infer(self, graph: Graph) -> Inferred:
        answer = Inferred(self.samples)
        for value in [*graph.inputs, *graph.leaves()]:
            self._given(value, answer)
        for node in graph.nodes:
            self._node(node, answer)
        return answer

    def _given(self, value: Value, answer: Inferred) -> bool:
        if isinstance(value, Constant) and value.array is not None:
            answer.facts[value] = self._of_array(value.array)
            return True
        if value.dtype is None or value.shape is None:
            return False
        vectors = [self.samples.vector(dim) for dim in value.shape]
        if None in vectors:
            return False
        rows = zip(*(v for v in vectors if v is not None), strict=True) if vectors else [()] * self._count
        answer.facts[value] = self._interned(Fact(value.dtype, tuple(rows)))
        return True

    def _of_array(self, array: Array) -> Fact:
        contents = (array,) * self._count if array.size <= MAX_CONTENT_ELEMENTS else None
        return self._interned(Fact(BY_NUMPY[array.dtype].short, (array.shape,) * self._count, contents))

    def _interned(self, fact: Fact) -> Fact:
        raw = None if fact.contents is None else tuple(array.tobytes() for array in fact.contents)
        return self._facts.setdefault((fact.dtype, fact.shapes, raw), fact)

    def _states(self, node: Node, answer: Inferred) -> None:
        """A state without sizes has those that its operator's signature gives it, by the other operands."""
        for write in OPERATORS[node.op].writes:
            state = node.inputs[write.operand]
            if not isinstance(state, State) or state in answer.facts:
                continue
            facts = [None if value is None else answer.facts.get(value) for value in node.inputs]
            samples = [typed_sizes(facts, k) for k in range(self._count)]
            with contextlib.suppress(MismatchError):  # the node says so itself when it is its turn
                signature = OPERATORS[node.op].signature(node.attributes)
                sizes = [signature.state_sizes(write.operand, s, self._max_sequence) for s in samples]
                answer.facts[state] = self._interned(Fact(sizes[0][0], tuple(shape for _, shape in sizes)))

    def _node(self, node: Node, answer: Inferred) -> None:
        if node.op in OPERATORS:
            self._states(node, answer)
        operands = [None if v is None else answer.facts.get(v) for v in node.inputs]
        if any(fact is None and v is not None for fact, v in zip(operands, node.inputs, strict=True)):
            found: list[Fact] | str = "the size of an operand is not known"
        else:
            found = self._remembered(node, operands)
        if not isinstance(found, str):
            answer.facts.update(zip(node.outputs, found, strict=True))
            return
        known = [self._given(output, answer) for output in node.outputs]
        if not all(known):
            answer.failures[node] = found

    def _remembered(self, node: Node, operands: list[Fact | None]) -> list[Fact] | str:
        key = (node.op, attributes_key(node.attributes), len(node.outputs), *map(id, operands))
        if key not in self._nodes:
            try:
                found = node_facts(node, operands, self.samples, self._opset)
                self._nodes[key] = [self._interned(fact) for fact in found]
            except UnknownSizeError as error:
                self._nodes[key] = str(error)
        return self._nodes[key]


def attributes_key(attributes: Mapping[str, Attribute]) -> tuple[tuple[str, object], ...]:
    """Attributes as something to compare and hash; tensors by their bytes."""
    return tuple(
        (key, (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value)
        for key, value in sorted(attributes.items(), key=lambda item: item[0])
    )
