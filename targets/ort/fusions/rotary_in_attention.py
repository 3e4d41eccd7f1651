"""Rotary embeddings of queries and keys → com.microsoft.GroupQueryAttention with do_rotary."""

from __future__ import annotations

from typing import cast

from partc.ir.graph import Constant, Graph, Input, Node, Value, Weight
from partc.ir.match import Readers, made_by
from targets.ort.fusions.grouped_attention import GROUPED
from targets.rewrite import Rewriter

_COS = 7
"""Place of the operand `cos_cache`; `sin_cache` follows."""
_WIDTH_UNIT = 16
"""The operator rotates a part of a head whose size is a multiple of this."""
_ELEMENTWISE = frozenset({"Cast", "Mul", "Add", "Sub", "Div", "Neg", "Cos", "Sin", "Unsqueeze"})


def fuse_rotary_in_attention(graph: Graph) -> int:
    """Let attentions rotate queries and keys themselves; returns how many; O(nodes).

    Contract (onnxruntime 1.31, its schema and CPU kernel): cos_cache and sin_cache [at least max_sequence, r / 2],
    r <= d a multiple of 16; without position_ids, row i of the step in sequence b of the batch has position
    seqlens_k[b] + 1 - rows + i, which is `position[b] + i` here. So the tables must be functions of that sum alone:
    the nodes that make them are written again for 0, 1, … max_sequence - 1, from constants, and onnxruntime folds
    them when it loads the graph. Where they depend on more (scaling by the longest row), nothing is fused.
    """
    r, readers = Rewriter(graph), Readers(graph)
    tables = _Tables(r)
    fused = sum(_fuse(node, readers, tables) for node in graph.nodes if node.op == GROUPED)
    graph.nodes = [*r.nodes, *graph.nodes]
    return fused


def _fuse(node: Node, readers: Readers, tables: _Tables) -> bool:
    rotaries = [made_by(value, "RotaryEmbedding") for value in node.inputs[:2]]
    query, key = rotaries
    state = node.inputs[3]
    if (
        query is None
        or key is None
        or state is None
        or state.shape is None
        or not readers.only_inside([query, key], node)
    ):
        return False
    if query.inputs[1:] != key.inputs[1:] or len(query.inputs) != 3 or _turning(query) != _turning(key):
        return False
    rows = cast("int", state.shape[2])
    found = [tables.of(cast("Value", table), rows) for table in query.inputs[1:]]
    if any(table is None or cast("int", (table.shape or ())[1]) * 2 % _WIDTH_UNIT for table in found):
        return False
    node.inputs[:2] = [query.inputs[0], key.inputs[0]]
    node.inputs[_COS : _COS + 2] = found
    node.attributes |= {"do_rotary": 1, "rotary_interleaved": _turning(query)}
    return True


def _turning(rotary: Node) -> int:
    return cast("int", rotary.attributes.get("interleaved", 0))


class _Tables:
    """Tables [max_sequence, r / 2] for tables [batch, sequence, r / 2] that depend on a token's position alone."""

    def __init__(self, r: Rewriter) -> None:
        self._r = r
        self._sums: dict[Value, Node | None] = {}
        """Value → what `_sum_of_steps` found, so that each is looked at once."""

    def of(self, table: Value, rows: int) -> Value | None:
        """The values of `table` for positions 0 … rows - 1; None where it cannot be proved to depend on them alone."""
        if len(table.shape or ()) != 3 or self._sum_of_steps(table) is None:
            return None
        return self._r.once(("table", table, rows), lambda: self._squeezed(table, rows))

    def _squeezed(self, table: Value, rows: int) -> Value:
        wide = self._again(table, rows)
        shape = (wide.shape or ())[1:]
        return self._r.op("Squeeze", [wide, self._r.integers(0)], wide.dtype, shape, f"{table.name}.table")

    def _again(self, value: Value, rows: int) -> Value:
        if isinstance(value, Constant | Weight):
            return value
        return self._r.once(("again", value, rows), lambda: self._made_again(value, rows))

    def _made_again(self, value: Value, rows: int) -> Value:
        node = cast("Node", value.producer)
        if _is_position(node):
            zero, one = self._r.integer(0), self._r.integer(1)
            count = self._r.op("Range", [zero, self._r.integer(rows), one], "i64", (rows,), "positions")
            return self._r.op("Unsqueeze", [count, self._r.integers(0)], "i64", (1, rows), "positions")
        inputs = [self._again(operand, rows) for operand in node.operands]
        shape = tuple(
            rows if axis == 1 else 1 if axis == 0 else size for axis, size in enumerate(value.shape or ())
        )
        return self._r.op(node.op, inputs, value.dtype, shape, f"{value.name}.table", **node.attributes)

    def _sum_of_steps(self, value: Value) -> Node | None:
        """The node position + index that `value` is computed from, element by element; None where there is more."""
        if value not in self._sums:
            self._sums[value] = self._found_sum(value.producer)
        return self._sums[value]

    def _found_sum(self, node: Node | None) -> Node | None:
        if node is None or _is_position(node):
            return node
        if node.op not in _ELEMENTWISE or not _keeps_rows(node):
            return None
        sums = {self._sum_of_steps(operand) for operand in _varying(node)}
        return sums.pop() if len(sums) == 1 else None


def _varying(node: Node) -> list[Value]:
    return [operand for operand in node.operands if not isinstance(operand, Constant | Weight)]


def _keeps_rows(node: Node) -> bool:
    """Whether batch and sequence stay the first two axes of what `node` makes."""
    made = (node.outputs[0].shape or ())[:2]
    return len(made) == 2 and all((value.shape or ())[:2] == made for value in _varying(node))


def _is_position(node: Node) -> bool:
    """position[batch] + index[sequence], i64[batch, sequence]."""
    if node.op != "Add" or len(node.outputs[0].shape or ()) != 2:
        return False
    sizes = {_step_input(value): value.shape or () for value in node.operands}
    batch, sequence = node.outputs[0].shape or ()
    starts, counts = sizes.get("position"), sizes.get("index")
    return starts == (batch, 1) and counts in ((1, sequence), (sequence,))


def _step_input(value: Value) -> str:
    """The name of the step input that `value` is, perhaps with axes of size 1 more."""
    wrapped = made_by(value, "Unsqueeze")
    origin = wrapped.inputs[0] if wrapped else value
    return origin.name if isinstance(origin, Input) and origin.is_step else ""
