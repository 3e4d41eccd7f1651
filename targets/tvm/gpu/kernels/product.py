"""Products with weights in panels, quantised ones (`partc.ir.panels`) and floats (`targets.tvm.layout`), in float32.

The panels are those of processors. Other than there x stays as it is, in float32.

| rows of x | kernel |
| --- | --- |
| up to 4, or each of another expert | `few_rows`: bound by the memory that weights come from |
| more, on NVIDIA's GPUs since sm_80 | `tensor_product`, but for scales of less than 32 weights |
| more, elsewhere | `tile_product` |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tvm import relax

from partc.ir.graph import Node
from partc.ir.weight_formats import format_of
from targets.tvm.builder import Emitter, Expr, FunctionBuilder, tensor_type
from targets.tvm.gpu.kernels import few_rows, tensor_product, tile_product
from targets.tvm.gpu.kernels.shapes import Finish, Shape
from targets.tvm.kernels.vector import ACTIVATIONS
from targets.tvm.machine import Machine
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import decimal, dtype_of, integer, text


def product(s: Shape, finish: Finish, added: tuple[int, int] | None = None, weights: int = 1) -> Any:
    """y[M, N] of x and one or two weights, and of what is added, [1, N] or [M, N], which `finish` gets as well."""
    if s.M <= few_rows.MOST_ROWS:
        return few_rows.few_rows(s, finish, added, weights)
    make = tensor_product.tensor_product if tensor_product.takes(s) else tile_product.tile_product
    return make(s, finish, added, weights)


def plain_product(s: Shape) -> Any:
    """y[M, N] = x · wᵀ."""
    return product(s, lambda sums, row, column: sums[0])


def product_added(s: Shape, height: int) -> Any:
    """y[M, N] = x · wᵀ + added[height, N], height = 1 (a bias) or M (a residual)."""
    return product(s, lambda sums, row, column: sums[0] + sums[1], (height, s.N))


def product_gated(s: Shape, activation: str) -> Any:
    """y[M, N] = activation(x · gateᵀ) × (x · upᵀ)."""
    function = ACTIVATIONS[activation]
    return product(s, lambda sums, row, column: function(sums[0]) * sums[1], weights=2)


def products(*shapes: Shape) -> Any:
    """Products of one x with two or three weights, in one launch."""
    if shapes[0].M <= few_rows.MOST_ROWS:
        return few_rows.few_rows_products(*shapes)
    if tensor_product.takes(shapes[0]):
        return tensor_product.tensor_products(*shapes)
    return tile_product.tile_products(*shapes)


def product_operators(machine: Machine) -> Mapping[str, Emitter]:
    """Operator → what writes it for the GPU of a machine."""

    def shape(node: Node, place: int = 0) -> Shape:
        *leading, columns = input_shape(node)
        bits, block = integer(node, "bits", 0), integer(node, "block", 0)
        stored = format_of(bits, block).name if bits else dtype_of(node, 1)
        depth, rows = integer(node, "depth", columns), math.prod(leading)
        width = shape_of(node, place)[-1]
        return Shape(
            stored, rows, columns, width, depth, machine.most_threads, block, machine.has_tensor_cores,
            decimal(node, "epsilon", 0.0),
        )  # fmt: skip

    def flat(b: FunctionBuilder, node: Node, operand: Expr) -> Expr:
        s = shape(node)
        return b.emit(relax.op.reshape(operand, (s.M, s.K)))

    def one(
        make: Callable[..., Any], b: FunctionBuilder, node: Node, operands: list[Expr], *more: object
    ) -> Expr:
        s = shape(node)
        given = [flat(b, node, operands[0]), *operands[1:]]
        return relax.op.reshape(b.call(make, given, tensor_type((s.M, s.N), "f32"), s, *more), shape_of(node))

    def matmul(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        if not b.is_packed(node.inputs[1]):
            return OPERATORS["MatMul"](b, node, operands)
        return one(plain_product, b, node, operands)

    def plus(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        s = shape(node)
        height = 1 if len(input_shape(node, 2)) == 1 else s.M
        added = b.emit(relax.op.reshape(operands[2], (height, s.N)))
        return one(product_added, b, node, [*operands[:2], added], height)

    def gated(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        return one(product_gated, b, node, operands, text(node, "activation", ""))

    def several(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
        shapes = [shape(node, place) for place in range(len(node.outputs))]
        types = [tensor_type((s.M, s.N), "f32") for s in shapes]
        found = b.call(products, [flat(b, node, operands[0]), *operands[1:]], types, *shapes)
        parts = [b.emit(relax.TupleGetItem(found, place)) for place in range(len(shapes))]
        return [relax.op.reshape(part, shape_of(node, place)) for place, part in enumerate(parts)]

    def experts(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        return one(few_rows.experts_of_rows, b, node, operands, input_shape(node, 2)[0], dtype_of(node, 1))

    joined = {"ProductPlus": plus, "GatedProduct": gated, "Products": several}
    return {
        "MatMul": matmul,
        "tvm.Product": partial(one, plain_product),
        "tvm.QuantizedProduct": partial(one, plain_product),
        "tvm.QuantizedExperts": experts,
        **{f"tvm.{kind}{name}": write for name, write in joined.items() for kind in ("", "Quantized")},
    }
