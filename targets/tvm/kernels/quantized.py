"""Products with quantised weights in panels: kernels, and what writes them for the nodes of `targets.tvm.quantized`.

| node | computes |
| --- | --- |
| `tvm.QuantizeActivations(x)` | activations as bytes |
| `tvm.QuantizedProduct(q, w)` | x · wᵀ |
| `tvm.QuantizedProductPlus(q, w, added)` | x · wᵀ + added |
| `tvm.QuantizedGatedProduct(q, gate, up)` | activation(x · gateᵀ) × (x · upᵀ) |
| `tvm.QuantizedProducts(q, w…)` | two or three products of one x |
| `tvm.QuantizedRows(w, places)` | rows of w, a table of embeddings |
| `tvm.QuantizedExperts(q, chosen, w)` | the product of each row with the w of its expert |

One row moves the weight once, and little else: memory bounds it. On a core of EPYC 9004, AVX-512 VNNI computes 2.5
times as fast as memory is read, AVX2 1.5 times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder, Kernel, tensor_type, type_of
from targets.tvm.kernels.instructions import InstructionSet
from targets.tvm.kernels.quantize_activations import quantize_blocks, quantize_whole
from targets.tvm.kernels.quantized_experts import experts_of_rows
from targets.tvm.kernels.quantized_format import Format
from targets.tvm.kernels.quantized_gather import rows_of_panels
from targets.tvm.kernels.quantized_tiles import write_group
from targets.tvm.kernels.script import Buffer, prim_func
from targets.tvm.kernels.vector import ACTIVATIONS, loop_of
from targets.tvm.operators import input_shape, shape_of
from targets.tvm.operators.indexing import counted_from_front
from targets.tvm.operators.reading import dtype_of, integer, text


def quantized_product(f: Format) -> Any:
    """y[M, N] = x · wᵀ."""

    def write(x: Buffer, w: Buffer, y: Buffer) -> None:
        with loop_of(f.operations)(f.groups) as group:
            write_group(f, x, [w], y, group, lambda totals, row, column: totals[0])

    return prim_func({"x": f.x_type, "w": f.w_type, "y": f.y_type}, write)


def quantized_product_added(f: Format, A: int) -> Any:
    """y[M, N] = x · wᵀ + added[A, N], A = 1 (a bias) or M (a residual)."""

    def write(x: Buffer, w: Buffer, added: Buffer, y: Buffer) -> None:
        with loop_of(f.operations)(f.groups) as group:
            write_group(
                f, x, [w], y, group,
                lambda totals, row, column: totals[0] + added[0 if A == 1 else row, column],
                added=None if A == 1 else added,
            )  # fmt: skip

    return prim_func({"x": f.x_type, "w": f.w_type, "added": ((A, f.N), "float32"), "y": f.y_type}, write)


def quantized_product_gated(f: Format, activation: str) -> Any:
    """y[M, N] = activation(x · gateᵀ) × (x · upᵀ): neither product is written to memory."""
    function = ACTIVATIONS[activation]

    def write(x: Buffer, gate: Buffer, up: Buffer, y: Buffer) -> None:
        with loop_of(2 * f.operations)(f.groups) as group:
            write_group(
                f, x, [gate, up], y, group, lambda totals, row, column: function(totals[0]) * totals[1]
            )

    return prim_func({"x": f.x_type, "gate": f.w_type, "up": f.w_type, "y": f.y_type}, write)


def quantized_products(*formats: Format) -> Any:
    """Products of one x: one row of groups for all, so that threads share the work evenly."""

    def write(x: Buffer, *tensors: Buffer) -> None:
        weights, results = tensors[: len(formats)], tensors[len(formats) :]
        with loop_of(sum(f.operations for f in formats))(sum(f.groups for f in formats)) as group:
            _write_one_of(formats, x, weights, results, group)

    places = range(len(formats))
    weights = {f"w{place}": formats[place].w_type for place in places}
    results = {f"y{place}": formats[place].y_type for place in places}
    return prim_func({"x": formats[0].x_type, **weights, **results}, write)


def _write_one_of(
    formats: Sequence[Format], x: Buffer, weights: Sequence[Buffer], results: Sequence[Buffer], group: Expr
) -> None:
    """The group of that number, counted through all products."""
    f, *others = formats

    def write() -> None:
        write_group(f, x, weights[:1], results[0], group, lambda totals, row, column: totals[0])

    if not others:
        write()
        return
    with T.If(group < f.groups):
        with T.Then():
            write()
        with T.Else():
            _write_one_of(others, x, weights[1:], results[1:], group - f.groups)


def gather(
    b: FunctionBuilder, node: Node, operands: list[Expr], make: Kernel = rows_of_panels, *more: object
) -> Expr:
    """Rows by number, as `Gather` counts them, by the kernel `make`, which takes `more` besides."""
    bits, block, rows = integer(node, "bits", 4), integer(node, "block", 0), integer(node, "rows", 0)
    many, columns = math.prod(input_shape(node, 1)), shape_of(node)[-1]
    places = b.emit(relax.op.astype(counted_from_front(b, node, 1, operands[1], rows), "int64"))
    flat = b.emit(relax.op.reshape(places, (many,)))
    result = tensor_type((many, columns), "f32")
    sizes = (bits, block, many, rows, columns, input_shape(node, 0), *more)
    found = b.call(make, [operands[0], flat], result, *sizes)
    return relax.op.reshape(found, shape_of(node))


def quantized_operators(isa: InstructionSet) -> Mapping[str, Emitter]:
    """Operator → what writes it, for an instruction set."""

    def format_of(node: Node, place: int = 0) -> Format:
        bits, block, depth = (integer(node, name, 0) for name in ("bits", "block", "depth"))
        return Format(isa, bits, block, input_shape(node)[0], depth, shape_of(node, place)[-1])

    def activations(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        *leading, columns = input_shape(node)
        many = math.prod(leading)
        x, result = b.emit(relax.op.reshape(operands[0], (many, columns))), type_of(node.outputs[0])
        if sums := integer(node, "sums", 0):
            return b.call(quantize_blocks, [x], result, many, columns, integer(node, "depth", 0), sums)
        return b.call(quantize_whole, [x], result, many, columns, isa.unsigned)

    def product(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        f = format_of(node)
        flat = b.call(quantized_product, operands, tensor_type((f.M, f.N), "f32"), f)
        return relax.op.reshape(flat, shape_of(node))

    def product_plus(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        f = format_of(node)
        height = 1 if len(input_shape(node, 2)) == 1 else f.M
        added = b.emit(relax.op.reshape(operands[2], (height, f.N)))
        result = tensor_type((f.M, f.N), "f32")
        flat = b.call(quantized_product_added, [*operands[:2], added], result, f, height)
        return relax.op.reshape(flat, shape_of(node))

    def gated_product(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        f = format_of(node)
        name = text(node, "activation", "")
        flat = b.call(quantized_product_gated, operands, tensor_type((f.M, f.N), "f32"), f, name)
        return relax.op.reshape(flat, shape_of(node))

    def products(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
        formats = [format_of(node, place) for place in range(len(node.outputs))]
        types = [tensor_type((f.M, f.N), "f32") for f in formats]
        found = b.call(quantized_products, operands, types, *formats)
        flat = [b.emit(relax.TupleGetItem(found, place)) for place in range(len(formats))]
        return [relax.op.reshape(part, shape_of(node, place)) for place, part in enumerate(flat)]

    def experts(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        kind = dtype_of(node, 1)
        result = type_of(node.outputs[0])
        return b.call(experts_of_rows, operands, result, format_of(node), input_shape(node, 2)[0], kind)

    return {
        "tvm.QuantizeActivations": activations,
        "tvm.QuantizedExperts": experts,
        "tvm.QuantizedRows": gather,
        "tvm.QuantizedGatedProduct": gated_product,
        "tvm.QuantizedProduct": product,
        "tvm.QuantizedProductPlus": product_plus,
        "tvm.QuantizedProducts": products,
    }
