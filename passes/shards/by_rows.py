"""Graphs that compute each row of a step by itself, so that they can be called for some of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partc.ir.edit import Names
from partc.ir.flow import needed
from partc.ir.graph import Constant, Graph, Input, Node, Value, Weight
from partc.ir.operators import QUANTIZED_MATMUL
from partc.planner.programs.work import ROWS
from passes.shards.rules import ELEMENTWISE
from passes.shards.units import sizes_of

_OF_LAST_AXES = ("RMSNormalization", "LayerNormalization")


def is_by_rows(graph: Graph) -> bool:
    """Whether every row of the outputs depends on the same row of the inputs alone; O(edges).

    A step input that numbers rows is the same for all calls, so nobody may read it; `own_sizes` comes before.
    """
    if any(isinstance(value, Input) and value.is_step and _has_rows(value) for value in graph.inputs):
        return False
    if not all(map(_has_rows, graph.outputs)):
        return False
    return all(_keeps_rows(node) for node in graph.nodes if _touches_rows(node))


def rows_apart(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The nodes that can be computed row by row, and then those that cannot, with what depends on them."""
    mixing: set[Node] = set()
    for node in nodes:
        behind = any(value.producer in mixing for value in node.operands)
        if behind or (_touches_rows(node) and not _keeps_rows(node)):
            mixing.add(node)
    apart = {node for node in nodes if node not in mixing and _touches_rows(node)}
    apart |= needed(apart, {*nodes})
    return [node for node in nodes if node in apart], [node for node in nodes if node not in apart]


def own_sizes(graph: Graph) -> None:
    """Let a graph read how many rows there are off a value that it is given, and not off a step input."""
    given = [value for value in graph.inputs if not value.is_step and ROWS in sizes_of(value)]
    if not given:
        return
    axis = sizes_of(given[0]).index(ROWS)
    for node in graph.nodes:
        source = node.inputs[0] if node.op == "Shape" else None
        if isinstance(source, Input) and source.is_step and sizes_of(source) == (ROWS,):
            node.inputs[0] = given[0]
            node.attributes = {**node.attributes, "start": axis, "end": axis + 1}
    read = {value for node in graph.nodes for value in node.operands}
    graph.inputs = [value for value in graph.inputs if value in read or not value.is_step]


_FLAT = f"batch*{ROWS}"
"""The axis of rows that are in one with their sequences."""


def rows_by_sequence(graph: Graph, names: Names) -> None:
    """Let inputs and outputs have an axis for rows alone, where in the graph sequences and rows are one axis.

    Only then can they be cut into tiles of rows, and joined.
    """
    flat = [value for value in graph.inputs if _is_flat(value)]
    inner = {value: Value(names.fresh(f"{value.name}.flat"), value.dtype, value.shape) for value in flat}
    for node in graph.nodes:
        node.inputs = [inner.get(value, value) if value else None for value in node.inputs]  # type: ignore[call-overload]
    before = []
    for value, flattened in inner.items():
        target = _sizes(names, value, [-1, *sizes_of(value)[1:]])
        value.shape = ("batch", ROWS, *sizes_of(value)[1:])
        before.append(Node("Reshape", [value, target], [flattened]))
    graph.nodes = [*before, *graph.nodes]
    for place, made in enumerate(graph.outputs):
        if _is_flat(made):
            graph.outputs[place] = _with_axis(graph, made, names)


def has_own_rows(value: Value) -> bool:
    """Whether rows have an axis to themselves, or one with their sequences alone, which `rows_by_sequence` divides."""
    return ROWS in sizes_of(value) or _is_flat(value)


def _is_flat(value: Value) -> bool:
    sizes = sizes_of(value)
    return bool(sizes) and sizes[0] == _FLAT and all(isinstance(size, int) for size in sizes[1:])


def _with_axis(graph: Graph, value: Value, names: Names) -> Value:
    """An output under its name, with sequences and rows apart."""
    name, value.name = value.name, names.fresh(f"{value.name}.flat")
    source = next(given for given in graph.inputs if ROWS in sizes_of(given))
    axis = sizes_of(source).index(ROWS)
    rows, target = (Value(names.fresh(f"{name}.{what}"), "i64") for what in ("rows", "shape"))
    rows.shape, target.shape = (1,), (len(sizes_of(value)) + 1,)
    parts = [_sizes(names, value, [-1]), rows, _sizes(names, value, sizes_of(value)[1:])]
    found = Value(name, value.dtype, ("batch", ROWS, *sizes_of(value)[1:]))
    graph.nodes += [
        Node("Shape", [source], [rows], {"start": axis, "end": axis + 1}),
        Node("Concat", [*parts], [target], {"axis": 0}),
        Node("Reshape", [value, target], [found]),
    ]
    return found


def _sizes(names: Names, value: Value, sizes: Sequence[int | str]) -> Constant:
    return Constant(names.fresh(f"{value.name}.sizes"), "i64", (len(sizes),), array=np.array(sizes, np.int64))


def _touches_rows(node: Node) -> bool:
    return any(map(_has_rows, (*node.operands, *node.outputs)))


def _has_rows(value: Value) -> bool:
    return any(ROWS in str(size) for size in sizes_of(value))


def _keeps_rows(node: Node) -> bool:
    """Whether a row of what a node makes depends on that row of its operands alone."""
    rowed = [value for value in node.operands if _has_rows(value)]
    made = node.outputs[0]
    match node.op:
        case "Shape":
            return True
        case op if op in ELEMENTWISE or op in ("Swish", "Gelu"):
            return all(_aligned(value, made) for value in rowed)
        case op if op == QUANTIZED_MATMUL.name:
            return rowed == [node.inputs[0]] and _keeps_axes(rowed[0], made)
        case "MatMul":
            return len(rowed) == 1 and isinstance(node.inputs[1], Weight) and _keeps_axes(rowed[0], made)
        case "Gemm":
            return len(rowed) == 1 and rowed[0] is node.inputs[0] and not node.attributes.get("transA")
        case op if op in _OF_LAST_AXES:
            axis = node.attributes.get("axis", -1)
            rank = len(sizes_of(made))
            return rowed == [node.inputs[0]] and isinstance(axis, int) and _row_axis(made) < axis % rank
        case "Reshape":
            return rowed == [node.inputs[0]] and _same_rows(rowed[0], made)
        case "Split":
            axis = node.attributes.get("axis", 0)
            rank = len(sizes_of(rowed[0]))
            return isinstance(axis, int) and axis % rank != _row_axis(rowed[0])
        case "Transpose" | "Identity":
            return True
        case _:
            return False


def _row_axis(value: Value) -> int:
    """The axis that has the rows, alone or with others."""
    return next(axis for axis, size in enumerate(sizes_of(value)) if ROWS in str(size))


def _aligned(value: Value, made: Value) -> bool:
    """Whether broadcasting, which begins at the last axes, puts rows beside rows."""
    return len(sizes_of(value)) - _row_axis(value) == len(sizes_of(made)) - _row_axis(made)


def _keeps_axes(value: Value, made: Value) -> bool:
    return sizes_of(value)[:-1] == sizes_of(made)[:-1]


def _same_rows(value: Value, made: Value) -> bool:
    """Whether the rows stay behind the same sequences: axes before them are the same, or in one with them."""
    old, new = (tuple(sizes_of(each)[: _row_axis(each) + 1]) for each in (value, made))
    return _flat(old) == _flat(new)


def _flat(sizes: tuple[int | str, ...]) -> str:
    return "*".join(str(size) for size in sizes)
