"""x·cos + rotate(x)·sin becomes one `RotaryEmbedding`, with tables of half the width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from partc.ir.edit import Names, drop_dead
from partc.ir.graph import Constant, Graph, Node, Value
from partc.ir.match import Readers, become, either_order, made_by, number
from passes.fusions.match import integers, rank, slice_of_last

_Rotation = Callable[[Value], tuple[Value, list[Node]] | None]
_Origin = Callable[[Node], Value | None]

_ELEMENTWISE = frozenset({"Cos", "Sin", "Cast", "Neg"})
_WITH_NUMBER = frozenset({"Mul", "Add", "Sub", "Div"})


def fuse_rotary_embedding(graph: Graph) -> int:
    """Produce ONNX `RotaryEmbedding` (opset 23) without position ids.

    Inputs X [batch, heads, sequence, d], cos_cache and sin_cache [batch, sequence, d/2]; attributes
    interleaved (pairs are neighbours, as in GPT-J, not halves, as in Llama) and rotary_embedding_dim (only
    the first so many of d are rotated, as in Phi). Models write cosines and sines of full width d whose
    halves (or neighbours) are equal. The pattern fuses where this can be proved: the table is made of one
    concatenated with itself by elementwise operators; these are made again for the half.
    Returns the number of fused patterns, a partial rotation counts twice; O(nodes).
    """
    whole = _fuse_whole(graph)
    drop_dead(graph)  # what the first step replaced must not count as readers in the second
    return whole + _fuse_partial(graph)


def _fuse_whole(graph: Graph) -> int:
    readers = Readers(graph)
    halves = {False: _Halves(graph, _halved), True: _Halves(graph, _deinterleaved)}
    fused = sum(_fuse_sum(node, readers, halves) for node in graph.nodes if node.op == "Add")
    for table in halves.values():
        table.insert()
    return fused


def _fuse_sum(node: Node, readers: Readers, halves: dict[bool, _Halves]) -> bool:
    for straight, turned in either_order(node):
        for interleaved, rotation in ((False, _rotated_halves), (True, _rotated_pairs)):
            found = _terms(straight, turned, rotation)
            if found is None or not readers.only_inside(found[3], node):
                continue
            x, cos, sin, _ = found
            tables = [halves[interleaved].of_unsqueezed(table, x) for table in (cos, sin)]
            if any(table is None for table in tables):
                continue
            become(node, "RotaryEmbedding", [x, *tables], interleaved=int(interleaved))
            return True
    return False


def _terms(
    straight: Value, turned: Value, rotation: _Rotation
) -> tuple[Value, Value, Value, list[Node]] | None:
    """(x, cos, sin, nodes) of x·cos and rotate(x)·sin."""
    left, right = made_by(straight, "Mul"), made_by(turned, "Mul")
    if left is None or right is None:
        return None
    for rotated, sin in either_order(right):
        found = rotation(rotated)
        if found is None:
            continue
        for x, cos in either_order(left):
            if x is found[0] and rank(x) == 4:
                return x, cos, sin, [left, right, *found[1]]
    return None


def _rotated_halves(value: Value) -> tuple[Value, list[Node]] | None:
    """(x, nodes) of concat(-x[d/2:], x[:d/2])."""
    join = made_by(value, "Concat")
    if join is None or len(join.inputs) != 2 or join.attributes.get("axis") not in (-1, rank(value) - 1):
        return None
    negative = made_by(join.inputs[0], "Neg")
    high, low = slice_of_last(negative.inputs[0] if negative else None), slice_of_last(join.inputs[1])
    if negative is None or high is None or low is None or high[0] is not low[0] or not high[0].shape:
        return None
    size = high[0].shape[-1]
    if not isinstance(size, int) or size % 2 or (low[1:3], high[1:3]) != ((0, size // 2), (size // 2, size)):
        return None
    return high[0], list(dict.fromkeys([join, negative, high[3], low[3]]))


def _rotated_pairs(value: Value) -> tuple[Value, list[Node]] | None:
    """(x, nodes) of stack(-x[1::2], x[::2], last) flattened: neighbours are pairs."""
    flat = made_by(value, "Reshape", "Flatten")
    join = made_by(flat.inputs[0], "Concat") if flat else None
    if (
        flat is None
        or join is None
        or len(join.inputs) != 2
        or join.attributes.get("axis") not in (-1, rank(value))
    ):
        return None
    wraps = [_last_unsqueeze(item) for item in join.inputs]
    negative = made_by(wraps[0].inputs[0], "Neg") if wraps[0] else None
    if negative is None or wraps[0] is None or wraps[1] is None:
        return None
    odd, even = _every_second(negative.inputs[0], 1), _every_second(wraps[1].inputs[0], 0)
    x = odd.inputs[0] if odd else None
    if odd is None or even is None or x is None or even.inputs[0] is not x or x.shape != value.shape:
        return None
    return x, [flat, join, *(w for w in wraps if w), negative, odd, even]


def _last_unsqueeze(value: Value | None) -> Node | None:
    node = made_by(value, "Unsqueeze")
    axes = integers(node.inputs[1]) if node and len(node.inputs) > 1 else None
    return node if node is not None and axes in ((-1,), (rank(node.outputs[0]) - 1,)) else None


def _every_second(value: Value | None, first: int) -> Node | None:
    """The Slice that takes every second element of the last axis, from `first` to the end."""
    node = made_by(value, "Slice")
    operands = [integers(operand) for operand in node.inputs[1:]] if node else []
    if (
        node is None
        or node.inputs[0] is None
        or len(operands) != 4
        or any(o is None or len(o) != 1 for o in operands)
    ):
        return None
    start, stop, axis, step = (o[0] for o in operands if o is not None)
    size = (node.inputs[0].shape or ("",))[-1]
    whole = isinstance(size, int) and size % 2 == 0 and stop >= size
    return node if whole and (start, step) == (first, 2) and axis in (-1, rank(node.inputs[0]) - 1) else None


def _halved(node: Node) -> Value | None:
    """The x where `node` makes concat(x, x) along the last axis."""
    if (
        node.op != "Concat"
        or len(node.inputs) != 2
        or node.attributes.get("axis") not in (-1, rank(node.outputs[0]) - 1)
    ):
        return None
    return node.inputs[0] if node.inputs[0] is node.inputs[1] else None


def _deinterleaved(node: Node) -> Value | None:
    """The x where `node` makes x with every element of the last axis twice in a row."""
    inner = made_by(node.inputs[0], "Tile", "Expand", "Concat") if node.op == "Reshape" else None
    if inner is None or rank(inner.outputs[0]) != rank(node.outputs[0]) + 1 or len(set(inner.inputs)) > 2:
        return None
    wrap = _last_unsqueeze(inner.inputs[0])
    x = wrap.inputs[0] if wrap else None
    if inner.op == "Concat" and (len(inner.inputs) != 2 or inner.inputs[0] is not inner.inputs[1]):
        return None
    if x is None or x.shape is None or inner.outputs[0].shape != (*x.shape, 2):
        return None
    size = x.shape[-1]
    doubled = isinstance(size, int) and node.outputs[0].shape == (*x.shape[:-1], 2 * size)
    return x if doubled else None


class _Halves:
    """Tables of half the width for tables that repeat themselves; each is made once, behind the full one."""

    def __init__(self, graph: Graph, origin: _Origin) -> None:
        self._graph = graph
        self._origin = origin
        self._names = Names(graph)
        self._half: dict[Value, Value | None] = {}
        self._squeezed: dict[Value, Value] = {}
        self._behind: dict[Node, list[Node]] = {}

    def of_unsqueezed(self, table: Value, x: Value) -> Value | None:
        """[batch, sequence, d/2] for a table [batch, 1, sequence, d] that multiplies `x`."""
        batch, _, sequence, size = x.shape or ()
        if table.shape != (batch, 1, sequence, size) or table.dtype != x.dtype:
            return None
        wrap = made_by(table, "Unsqueeze")
        full = wrap.inputs[0] if wrap else None
        if wrap is not None and full is not None and integers(wrap.inputs[-1]) == (1,):
            return self.of(full)
        half = self.of(table)
        return None if half is None else self._squeeze(table, half)

    def _squeeze(self, table: Value, half: Value) -> Value:
        if half not in self._squeezed:
            assert half.shape is not None
            assert table.producer is not None
            shape = (half.shape[0], *half.shape[2:])
            flat = Value(self._names.fresh(f"{half.name}.squeeze"), half.dtype, shape)
            axes = Constant(self._names.fresh(f"{half.name}.axes"), "i64", (1,), array=np.ones(1, np.int64))
            self._add(table.producer, Node("Squeeze", [half, axes], [flat], scope=table.producer.scope))
            self._squeezed[half] = flat
        return self._squeezed[half]

    def _add(self, node: Node, new: Node) -> None:
        self._behind.setdefault(node, []).append(new)

    def of(self, full: Value) -> Value | None:
        """The half of `full`, None where it cannot be proved to repeat itself."""
        if full not in self._half:
            self._half[full] = self._find(full)
        return self._half[full]

    def _find(self, full: Value) -> Value | None:
        node = full.producer
        if node is None:
            return None
        origin = self._origin(node)
        if origin is not None or not (node.op in _ELEMENTWISE or node.op in _WITH_NUMBER):
            return origin
        inputs = [value if number(value) is not None else self.of(value) for value in node.operands]
        if any(value is None for value in inputs) or full.shape is None:
            return None
        size = full.shape[-1]
        assert isinstance(size, int)
        half = Value(self._names.fresh(f"{full.name}.half"), full.dtype, (*full.shape[:-1], size // 2))
        self._add(node, Node(node.op, [*inputs], [half], dict(node.attributes), node.scope))
        return half

    def insert(self) -> None:
        """Put the new nodes into the graph."""
        self._graph.nodes = [n for node in self._graph.nodes for n in (node, *self._behind.get(node, ()))]


def _fuse_partial(graph: Graph) -> int:
    """concat(rotary(x[:r]), x[r:]) is the rotary embedding of the first r of d."""
    readers = Readers(graph)
    return sum(
        _fuse_concat(node, readers) for node in graph.nodes if node.op == "Concat" and len(node.inputs) == 2
    )


def _fuse_concat(node: Node, readers: Readers) -> bool:
    rotary, rest = made_by(node.inputs[0], "RotaryEmbedding"), slice_of_last(node.inputs[1])
    rotated = slice_of_last(rotary.inputs[0]) if rotary else None
    if rotary is None or rest is None or rotated is None or rotated[0] is not rest[0]:
        return False
    x, inner = rest[0], list(dict.fromkeys([rotary, rotated[3], rest[3]]))
    covers = rotated[1] == 0 and rotated[2] == rest[1] and x.shape == node.outputs[0].shape
    on_last = node.attributes.get("axis") in (-1, rank(x) - 1)
    if (
        rotary.attributes.get("rotary_embedding_dim")
        or not covers
        or not on_last
        or not readers.only_inside(inner, node)
    ):
        return False
    attributes = {**rotary.attributes, "rotary_embedding_dim": rotated[2]}
    become(node, "RotaryEmbedding", [x, *rotary.inputs[1:]], **attributes)
    return True
