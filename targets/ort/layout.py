"""Between [batch, heads, sequence, d] and [batch, sequence, heads × d], without needless copies.

Lowerings write a Transpose and a Reshape wherever an operator wants the other layout; `merge_layout` then
cancels them against those of the model, which usually splits and joins heads right beside the attention.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from partc.errors import InternalError
from partc.ir.edit import drop_dead
from partc.ir.graph import Constant, Graph, Node, Value
from partc.ir.match import made_by
from targets.rewrite import Rewriter

SWAP = (0, 2, 1, 3)
"""The permutation between the two layouts; its own inverse."""


def to_hidden(r: Rewriter, value: Value) -> Value:
    """[batch, heads, sequence, d] as [batch, sequence, heads × d]."""
    batch, heads, sequence, size = _four(value)
    rows = r.op(
        "Transpose", [value], value.dtype, (batch, sequence, heads, size), f"{value.name}.rows", perm=SWAP
    )
    shape = (batch, sequence, heads * size)
    return r.op("Reshape", [rows, r.integers(0, 0, heads * size)], value.dtype, shape, f"{value.name}.flat")


def from_hidden(r: Rewriter, hidden: Value, output: Value, heads: int) -> None:
    """Make `output` [batch, heads, sequence, d] of `hidden` [batch, sequence, heads × d]."""
    batch, sequence, width = hidden.shape or ()
    size = cast("int", width) // heads
    shape = (batch, sequence, heads, size)
    rows = r.op(
        "Reshape", [hidden, r.integers(0, 0, heads, size)], hidden.dtype, shape, f"{hidden.name}.rows"
    )
    output.dtype, output.shape = hidden.dtype, (batch, heads, sequence, size)
    r.emit("Transpose", [rows], [output], {"perm": SWAP})


def _four(value: Value) -> tuple[int | str, int, int | str, int]:
    shape = value.shape or ()
    if len(shape) != 4 or not isinstance(shape[1], int) or not isinstance(shape[3], int):
        raise InternalError(
            f"%{value.name} is not [batch, heads, sequence, d] but {shape}", hint="run infer-sizes first"
        )
    return shape[0], shape[1], shape[2], shape[3]


def merge_layout(graph: Graph) -> None:
    """Cancel pairs of Transpose and of Reshape, in place, until nothing changes; O(nodes) a round."""
    while _merge_once(graph):
        drop_dead(graph)


def _merge_once(graph: Graph) -> bool:
    protected = set(graph.outputs)
    replaced: dict[Value, Value] = {}
    users = graph.consumers()
    changed = False
    for node in graph.nodes:
        source = _equal_source(node)
        if source is not None and node.outputs[0] not in protected:
            replaced[node.outputs[0]] = source
        else:
            changed |= _join_reshapes(node) or _sink_transpose(node, users) or _turn_rotary(node, users)
    graph.replace_uses(replaced)
    return bool(replaced) or changed


def _equal_source(node: Node) -> Value | None:
    """An earlier value that equals this node's result, or None."""
    first = node.inputs[0] if node.inputs else None
    before = first.producer if first is not None else None
    if node.op == "Reshape":
        same = first is not None and first.shape is not None and first.shape == node.outputs[0].shape
        if same:
            return first
        return _reshape_origin(node)
    if node.op != "Transpose" or before is None or before.op != "Transpose":
        return None
    inner, outer = before.attributes.get("perm"), node.attributes.get("perm")
    if not (isinstance(inner, tuple) and isinstance(outer, tuple)):
        return None
    is_identity = [inner[int(cast("int", axis))] for axis in outer] == list(range(len(outer)))
    return before.inputs[0] if is_identity else None


def _reshape_origin(node: Node) -> Value | None:
    """The operand of the Reshape before this one, where it has the shape that this one makes again."""
    origin = _before_reshape(node)
    shape = node.outputs[0].shape
    return origin if origin is not None and shape is not None and origin.shape == shape else None


def _before_reshape(node: Node) -> Value | None:
    first = node.inputs[0]
    before = first.producer if first is not None else None
    return before.inputs[0] if before is not None and before.op == "Reshape" else None


def _join_reshapes(node: Node) -> bool:
    """Let the second of two Reshapes read the operand of the first, where it needs nothing of it."""
    if node.op != "Reshape":
        return False
    target, origin = node.inputs[1], _before_reshape(node)
    if (
        origin is None
        or not isinstance(target, Constant)
        or target.array is None
        or node.attributes.get("allowzero")
    ):
        return False
    middle = cast("Value", node.inputs[0])
    kept = [axis for axis, size in enumerate(target.array.tolist()) if size == 0]
    if kept and (origin.shape is None or middle.shape is None):
        return False
    if any(
        axis >= len(origin.shape or ()) or (origin.shape or ())[axis] != (middle.shape or ())[axis]
        for axis in kept
    ):
        return False
    node.inputs[0] = origin
    return True


def _sink_transpose(node: Node, users: dict[Value, list[Node]]) -> bool:
    """Norm(Swap(rows)) → Swap(Norm(rows)) for a norm over the last axis, so that the Swap may cancel."""
    inner = made_by(node.inputs[0], "Transpose") if node.op == "RMSNormalization" else None
    if inner is None or inner.attributes.get("perm") != SWAP:
        return False
    rows, swapped = inner.inputs[0], inner.outputs[0]
    if node.attributes.get("axis", -1) not in (-1, 3) or len(users.get(swapped, [])) != 1 or rows is None:
        return False
    inner.op, inner.inputs, inner.attributes = node.op, [rows, *node.inputs[1:]], node.attributes
    inner.outputs = [Value(f"{node.name}.rows", swapped.dtype, rows.shape, inner)]
    node.op, node.inputs, node.attributes = "Transpose", list(inner.outputs), {"perm": SWAP}
    return True


def _turn_rotary(node: Node, users: dict[Value, list[Node]]) -> bool:
    """Swap(Rotary(Swap(x))) → Rotary on [batch, sequence, heads × d]."""
    if node.op != "Transpose" or node.attributes.get("perm") != SWAP:
        return False
    rotary = made_by(node.inputs[0], "RotaryEmbedding")
    inner = made_by(rotary.inputs[0], "Transpose") if rotary is not None else None
    if rotary is None or inner is None:
        return False
    rows, turned = inner.inputs[0], rotary.outputs[0]
    if inner.attributes.get("perm") != SWAP or rows is None:
        return False
    if any(len(users.get(value, [])) != 1 for value in (turned, inner.outputs[0])):
        return False
    shape = rows.shape or ()
    if len(shape) != 4 or not isinstance(shape[2], int) or not isinstance(shape[3], int):
        return False
    _write_flat_rotary(node, rotary, inner, rows)
    return True


def _write_flat_rotary(node: Node, rotary: Node, inner: Node, rows: Value) -> None:
    """Reuse the three nodes: Transpose, rotary, Transpose become Reshape, rotary, Reshape."""
    batch, sequence, heads, size = rows.shape or ()
    heads, size = cast("int", heads), cast("int", size)
    flat = (batch, sequence, heads * size)
    inner.op, inner.attributes = "Reshape", {}
    inner.inputs = [rows, _sizes(f"{inner.name}.flat_shape", 0, 0, heads * size)]
    inner.outputs = [_output(inner, flat)]
    rotary.inputs[0] = inner.outputs[0]
    rotary.attributes["num_heads"] = heads
    rotary.outputs = [_output(rotary, flat)]
    node.op, node.attributes = "Reshape", {}
    node.inputs = [rotary.outputs[0], _sizes(f"{node.name}.rows_shape", 0, 0, heads, size)]


def _output(node: Node, shape: tuple[int | str, ...]) -> Value:
    return Value(f"{node.name}.flat3", node.outputs[0].dtype, shape, node)


def _sizes(name: str, *sizes: int) -> Constant:
    return Constant(name, "i64", (len(sizes),), array=np.array(sizes, np.int64))
