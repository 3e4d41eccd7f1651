"""Products of matrices, convolutions and what slides over an image as they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tvm import relax

from partc.ir.graph import Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder
from targets.tvm.operators.reading import (
    decimal,
    dtype_of,
    has,
    input_shape,
    integer,
    integers,
    number,
    shape_of,
    text,
    unsupported,
)

op = relax.op
_LETTERS = {3: "W", 4: "HW", 5: "DHW"}
"""Rank of an image → the letters of its axes."""
_CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}
"""Axes of an image besides batch and channels → what convolves over them."""


def _matmul(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    return op.matmul(operands[0], _like(b, node, operands))


def _like(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """The second factor in the type of the first: a weight may be stored in half precision (`widen.py`)."""
    same = dtype_of(node, 1) == dtype_of(node)
    return operands[1] if same else b.emit(op.astype(operands[1], dtype_of(node)))


def _gemm(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """α · A' · B' + β · C."""
    left, right, dtype = operands[0], _like(b, node, operands), dtype_of(node)
    left = b.emit(op.permute_dims(left, [1, 0])) if integer(node, "transA", 0) else left
    right = b.emit(op.permute_dims(right, [1, 0])) if integer(node, "transB", 0) else right
    result = b.emit(op.matmul(left, right))
    alpha, beta = decimal(node, "alpha", 1.0), decimal(node, "beta", 1.0)
    result = result if alpha == 1.0 else b.emit(result * number(alpha, dtype))
    if not has(node, 2) or beta == 0.0:
        return result
    added = operands[2] if beta == 1.0 else b.emit(operands[2] * number(beta, dtype))
    return op.add(result, added)


def _einsum(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    equation = text(node, "equation", "").replace(" ", "")
    if "..." in equation:
        raise unsupported(node, "with an ellipsis")
    return op.einsum(tuple(operands), equation)


def _window(node: Node) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads (all before, then all after) of a node that slides over an image."""
    spatial = input_shape(node)[2:]
    kernel = integers(node, "kernel_shape", input_shape(node, 1)[2:] if has(node, 1) else ())
    ones = (1,) * len(spatial)
    strides, dilations = integers(node, "strides", ones), integers(node, "dilations", ones)
    kind = text(node, "auto_pad", "NOTSET")
    if kind in ("NOTSET", "VALID"):
        none = (0,) * 2 * len(spatial)
        pads = integers(node, "pads", none) if kind == "NOTSET" else none
        return list(strides), list(dilations), list(pads)
    before, after = [], []
    for size, width, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        total = max(0, (math.ceil(size / stride) - 1) * stride + (width - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(small if kind == "SAME_UPPER" else large)
        after.append(large if kind == "SAME_UPPER" else small)
    return list(strides), list(dilations), [*before, *after]


def _conv(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    return _convolved(b, node, operands, _CONVOLUTIONS, "OI")


def _conv_transpose(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    rank = len(input_shape(node)) - 2
    if rank > 2 or "output_shape" in node.attributes or text(node, "auto_pad", "NOTSET") != "NOTSET":
        raise unsupported(node, "with a shape of its own")
    padding = list(integers(node, "output_padding", (0,) * rank))
    return _convolved(b, node, operands, _TRANSPOSED, "IO", output_padding=padding)


def _convolved(
    b: FunctionBuilder,
    node: Node,
    operands: list[Expr],
    functions: Mapping[int, Callable[..., Expr]],
    channels: str,
    **options: object,
) -> Expr:
    """A convolution of either direction and its bias; `channels` names the first two axes of the kernel."""
    strides, dilations, pads = _window(node)
    letters = _letters(node)
    found = functions[len(strides)](
        operands[0],
        operands[1],
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=integer(node, "group", 1),
        data_layout=f"NC{letters}",
        kernel_layout=f"{channels}{letters}",
        **options,
    )
    return _with_bias(b, node, b.emit(found), operands)


def _with_bias(b: FunctionBuilder, node: Node, found: Expr, operands: list[Expr]) -> Expr:
    if not has(node, 2):
        return found
    shape = (shape_of(node)[1], *(1 for _ in shape_of(node)[2:]))
    return op.add(found, b.emit(op.reshape(operands[2], shape)))


def _letters(node: Node) -> str:
    rank = len(input_shape(node))
    if rank not in _LETTERS:
        raise unsupported(node, f"of {rank} axes")
    return _LETTERS[rank]


def _pool(kind: str) -> Emitter:
    """The largest or the mean of every window."""

    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        if len(node.outputs) > 1:
            raise unsupported(node, "that also gives places")
        strides, dilations, pads = _window(node)
        letters = _letters(node)
        function = getattr(op.nn, f"{kind}_pool{len(strides)}d")
        options = {"count_include_pad": bool(integer(node, "count_include_pad", 0))} if kind == "avg" else {}
        return function(
            operands[0],
            pool_size=list(integers(node, "kernel_shape", ())),
            strides=strides,
            padding=pads,
            dilation=dilations,
            ceil_mode=bool(integer(node, "ceil_mode", 0)),
            layout=f"NC{letters}",
            out_layout=f"NC{letters}",
            **options,
        )

    return emit


def _global_pool(kind: str) -> Emitter:
    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        axes: Sequence[int] = range(2, len(input_shape(node)))
        return getattr(op, kind)(operands[0], axis=list(axes), keepdims=True)

    return emit


PRODUCTS: Mapping[str, Emitter] = {
    "AveragePool": _pool("avg"),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"),
    "MatMul": _matmul,
    "MaxPool": _pool("max"),
}
"""Operator → what writes it."""
