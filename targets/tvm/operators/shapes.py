"""Operators that move elements and compute nothing; the shape of the result, which the IR knows, says most of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import relax

from partc.ir.graph import Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder
from targets.tvm.operators.reading import (
    array,
    axis_of,
    constant,
    dtype_of,
    has,
    input_shape,
    integer,
    integers,
    listed,
    number,
    result_dtype,
    shape_of,
    text,
    unsupported,
)

op = relax.op


def reshaped(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """The same elements in the same order: Reshape, Flatten, Squeeze, Unsqueeze."""
    return op.reshape(operands[0], shape_of(node))


def _expand(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    return op.broadcast_to(operands[0], shape_of(node))


def _transpose(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """A copy, unless only sizes of 1 change their place: then it is a view, as at every decode step."""
    sizes = input_shape(node)
    perm = list(integers(node, "perm", tuple(reversed(range(len(sizes))))))
    moved = [axis for axis in perm if sizes[axis] != 1]
    if moved == sorted(moved):
        return op.reshape(operands[0], shape_of(node))
    return op.permute_dims(operands[0], perm)


def _concat(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    axis = axis_of(node, 0)
    pieces = zip(node.inputs, operands, strict=True)
    filled = [piece for value, piece in pieces if value and value.shape and value.shape[axis] != 0]
    if not filled:
        return operands[0]
    return filled[0] if len(filled) == 1 else op.concat(filled, axis=axis)


def _split(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """The sizes of the outputs say where to cut."""
    axis = axis_of(node, 0)
    sizes = [shape_of(node, place)[axis] for place in range(len(node.outputs))]
    if 0 in sizes:
        raise unsupported(node, "with an empty part")
    ends = np.cumsum(sizes).tolist()
    if len(ends) == 1:
        return [operands[0]]
    pieces = b.emit(op.split(operands[0], ends[:-1], axis=axis))
    return [relax.TupleGetItem(pieces, place) for place in range(len(ends))]


def _slice(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Bounds are operands since opset 10, attributes before; they are clipped as Python clips those of a list."""
    starts, ends = (listed(node, place, name) or () for place, name in ((1, "starts"), (2, "ends")))
    axes = listed(node, 3, "axes") or tuple(range(len(starts)))
    steps = listed(node, 4, "steps") or (1,) * len(starts)
    sizes, result = input_shape(node), operands[0]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = sizes[axis % len(sizes)]
        stop: int | None = end
        if step < 0 and end < -size:
            stop = None
        kept = range(*slice(start, stop, step).indices(size))
        result = b.emit(_taken(result, axis % len(sizes), kept, size))
    return result


def _taken(x: Expr, axis: int, kept: range, size: int) -> Expr:
    """The rows `kept` of an axis."""
    if kept == range(size):
        return x
    if not kept:
        return op.strided_slice(x, [axis], [0], [0])
    if kept.step > 0:
        return op.strided_slice(x, [axis], [kept.start], [kept.stop], [kept.step])
    return op.take(x, array(np.array(kept, "int64")), axis=axis, mode="clip")


def _tile(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    return op.tile(operands[0], [int(times) for times in constant(node, 1)])


def _pad(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Padding with a number, the edge, or what lies inside, mirrored; negative padding cuts."""
    rank = len(input_shape(node))
    given = listed(node, 1, "pads") or ()
    axes = [axis % rank for axis in (listed(node, 3, "axes") or range(rank))]
    result, sizes = operands[0], list(input_shape(node))
    mode = text(node, "mode", "constant")
    for axis, before, after in zip(axes, given[: len(axes)], given[len(axes) :], strict=True):
        size = sizes[axis]
        if mode != "constant":
            places = _padded_places(node, mode, size, before, after)
            result = b.emit(op.take(result, array(places), axis=axis, mode="clip"))
            continue
        kept = range(max(0, -before), size - max(0, -after))
        result = b.emit(_taken(result, axis, kept, size))
        sizes[axis] = len(kept)
        pieces = [_filling(node, operands, sizes, axis, max(0, many)) for many in (before, after)]
        parts = [part for part in (pieces[0], result, pieces[1]) if part is not None]
        result = b.emit(op.concat(parts, axis=axis)) if len(parts) > 1 else result
        sizes[axis] += max(0, before) + max(0, after)
    return result


def _filling(node: Node, operands: list[Expr], sizes: Sequence[int], axis: int, many: int) -> Expr | None:
    if many == 0:
        return None
    value = operands[2] if has(node, 2) else number(0, dtype_of(node))
    shape = [*sizes[:axis], many, *sizes[axis + 1 :]]
    return op.broadcast_to(op.reshape(value, ()) if has(node, 2) else value, shape)


def _padded_places(node: Node, mode: str, size: int, before: int, after: int) -> np.ndarray:
    """The element of an axis that stands at each place of the padded one."""
    places = np.arange(-before, size + after)
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    if mode != "reflect":
        raise unsupported(node, f"with mode {mode}")
    turn = max(1, 2 * (size - 1))
    return np.abs((places + size - 1) % turn - (size - 1)) if size > 1 else places * 0


def _trilu(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    diagonal = int(constant(node, 1).reshape(-1)[0]) if has(node, 1) else 0
    rows, columns = input_shape(node)[-2:]
    kept = np.triu if integer(node, "upper", 1) else np.tril
    mask = array(kept(np.ones((rows, columns), bool), diagonal))
    return op.where(mask, operands[0], number(0, dtype_of(node)))


def _depth_to_space(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    batch, channels, height, width = input_shape(node)
    size = integer(node, "blocksize", 1)
    rest = channels // size**2
    if text(node, "mode", "DCR") == "DCR":
        shape, perm = (batch, size, size, rest, height, width), [0, 3, 4, 1, 5, 2]
    else:
        shape, perm = (batch, rest, size, size, height, width), [0, 1, 4, 2, 5, 3]
    apart = b.emit(op.reshape(operands[0], shape))
    return op.reshape(b.emit(op.permute_dims(apart, perm)), shape_of(node))


def _space_to_depth(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    batch, channels, height, width = input_shape(node)
    size = integer(node, "blocksize", 1)
    apart = b.emit(op.reshape(operands[0], (batch, channels, height // size, size, width // size, size)))
    return op.reshape(b.emit(op.permute_dims(apart, [0, 3, 5, 1, 2, 4])), shape_of(node))


def _range(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    start, step = (constant(node, place).reshape(-1)[0] for place in (0, 2))
    return array((start + step * np.arange(shape_of(node)[0])).astype(result_dtype(node)))


def _constant_of_shape(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    value, dtype = node.attributes.get("value"), result_dtype(node)
    first = relax.const(value.reshape(-1)[0], dtype) if isinstance(value, np.ndarray) else number(0, dtype)
    return op.full(shape_of(node), first, dtype)


def _shape(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    sizes = input_shape(node)
    end = integer(node, "end", len(sizes))
    return array(np.array(sizes[slice(integer(node, "start", 0), end)], "int64"))


def _size(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    return array(np.array(np.prod(input_shape(node)), "int64"))


def _eye_like(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    rows, columns = shape_of(node)
    return array(np.eye(rows, columns, integer(node, "k", 0), dtype=result_dtype(node)))


SHAPES: Mapping[str, Emitter] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": reshaped,
    "Pad": _pad,
    "Range": _range,
    "Reshape": reshaped,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": reshaped,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": reshaped,
}
"""Operator → what writes it."""
