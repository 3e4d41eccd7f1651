"""Quantised products and tables in operators of onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar, cast

import numpy as np

from partc.errors import UserError
from partc.ir.graph import Constant, Node, Value, Weight
from partc.ir.operators import QUANTIZED_EXPERTS, QUANTIZED_GATHER, QUANTIZED_MATMUL
from partc.ir.operators.quantized import bits_of, block_of
from partc.ir.types import BY_SHORT
from partc.ir.weight_formats import by_format
from partc.ir.weights import Array, Step
from targets.ort.lower_experts import expert_lowering
from targets.rewrite import Lowering, Rewriter

_T = TypeVar("_T")
ACCURACY_LEVELS = {0: "the engine's choice", 1: "float32", 2: "float16", 3: "bfloat16", 4: "int8"}
"""accuracy_level of MatMulNBits → what it rounds activations to before it multiplies."""

INT8_PRODUCTS = {"rows": "fast prompts", "narrow-rows": "the same without VNNI", "blocks": "fast tokens"}
"""Ways of computing products with 8-bit weights → their advantage.

On x86 without VNNI onnxruntime adds two products of 8 bits in 16, which saturate: `rows` are off by 8 to 10 % of the
largest result (768 and 2048 columns of normal weights, AVX2). `narrow-rows` have activations of 7 bits, whose products
fit, in the same time: off by 1.7 to 2.1 %. `blocks` are off by 1 %, and take 4 to 20 times as long for 128 rows.

onnxruntime 1.31, one thread of an AVX512-VNNI core, giga-weights a second: MatMulIntegerToFloat 15 for one row and 173
for 512, MatMulNBits with blocks of 256 23 and 100. Both from the same weights would mean to keep them twice.
"""
_WIDE, _NARROW = 127, 63
"""Steps on either side of zero: of 8 bits, and of 7, where 2 · (63 + 64) · 127 is less than 2¹⁵."""
_BLOCKS = (256, 128, 64, 32, 16)
"""Blocks that MatMulNBits takes, the fastest first."""


def check_accuracy_level(level: int) -> None:
    """Raise a UserError if there is no such level."""
    if level not in ACCURACY_LEVELS:
        levels = ", ".join(f"{number} ({meaning})" for number, meaning in ACCURACY_LEVELS.items())
        raise UserError(
            f"there is no accuracy level {level}", where="options.accuracy_level", hint=f"levels: {levels}"
        )


def check_int8_products(kind: str) -> None:
    """Raise a UserError if there is no such way to multiply with 8-bit weights; `auto` stands for one of them."""
    if kind not in (*INT8_PRODUCTS, "auto"):
        kinds = ", ".join(f"{name} ({meaning})" for name, meaning in INT8_PRODUCTS.items())
        raise UserError(
            f"there are no int8 products by {kind!r}",
            where="options.int8_products",
            hint=f"write one of {kinds}",
        )


def quantized_lowerings(accuracy_level: int, int8_products: str) -> Mapping[str, Lowering]:
    """Operator → its lowering, for one accuracy level of MatMulNBits and one kind of products in 8 bits."""
    steps = _NARROW if int8_products == "narrow-rows" else _WIDE

    def block_product(node: Node, r: Rewriter) -> None:
        write = _by_format(
            node,
            int4=_write_block_product,
            int8=_write_wide_block_product,
            int8_blocks=_write_own_block_product,
        )
        write(node, r, accuracy_level)

    def product(node: Node, r: Rewriter) -> bool:
        if _by_format(node, int4=True, int8=_takes_blocks(node, r, int8_products), int8_blocks=True):
            block_product(node, r)
        else:
            _write_dynamic_product(node, r, steps)
        return True

    return {
        QUANTIZED_MATMUL.name: product,
        QUANTIZED_GATHER.name: lower_quantized_gather,
        QUANTIZED_EXPERTS.name: expert_lowering(block_product),  # few rows each, as a decoded token has
    }


def _by_format(node: Node, *, int4: _T, int8: _T, int8_blocks: _T) -> _T:
    """The choice among formats for the weights of a node."""
    return by_format(bits_of(node), block_of(node), int4=int4, int8=int8, int8_blocks=int8_blocks)


def _write_block_product(node: Node, r: Rewriter, accuracy_level: int) -> None:
    """com.microsoft.MatMulNBits: weights stay in 4 bits; at level 4 activations are rounded to int8 block by block.

    Contract: its schema in onnxruntime; B is u8[N, ceil(K / block), block / 2], low half first, and without zero
    points 8 stands for zero, which is the layout of the IR.
    """
    x, data, scales = node.inputs
    assert x is not None
    assert data is not None
    sizes = {"K": cast("tuple[int, ...]", x.shape)[-1], "N": cast("tuple[int, ...]", data.shape)[0]}
    attributes = {
        **sizes,
        "bits": 4,
        "block_size": node.attributes["block"],
        "accuracy_level": accuracy_level,
    }
    r.emit("com.microsoft.MatMulNBits", [x, data, scales], node.outputs, attributes, node.scope)


def _takes_blocks(node: Node, r: Rewriter, int8_products: str) -> bool:
    """The same as `may_take_blocks`, but a table of tokens keeps the weights that it shares."""
    data = node.inputs[1]
    assert data is not None
    is_shared = any(user.op != node.op for user in r.users.get(data, ()))
    return may_take_blocks(node, int8_products) and not is_shared


def may_take_blocks(node: Node, int8_products: str) -> bool:
    """Whether blocks are asked for, or every step has one row, as a head has."""
    x = node.inputs[0]
    shape = x.shape if x is not None and x.shape is not None else ()
    return int8_products == "blocks" or (len(shape) > 2 and shape[-2] == 1)


def _write_wide_block_product(node: Node, r: Rewriter, accuracy_level: int) -> None:
    """com.microsoft.MatMulNBits with 8 bits: as with 4, but 128 stands for zero; each block has its row's scale."""
    x, data, scales = node.inputs
    assert x is not None
    rows, columns = cast("tuple[int, int]", cast("Weight", data).shape)
    block = next((size for size in _BLOCKS if columns % size == 0), _BLOCKS[-1])
    count = -(-columns // block)
    blocks = r.once(("blocks", data), lambda: _in_blocks(cast("Weight", data), count, block, r))
    spread = r.once(("spread", scales, count), lambda: _spread(cast("Weight", scales), count, r))
    _emit_wide_product(node, r, [blocks, spread], (rows, columns, block), accuracy_level)


def _write_own_block_product(node: Node, r: Rewriter, accuracy_level: int) -> None:
    """The same with the scales that blocks have of their own."""
    x, data, scales = node.operands
    rows, count, block = cast("tuple[int, int, int]", data.shape)
    blocks = r.once(("blocks", data), lambda: _in_blocks(cast("Weight", data), count, block, r))
    sizes = rows, cast("int", (x.shape or ())[-1]), block
    _emit_wide_product(node, r, [blocks, scales], sizes, accuracy_level)


def _emit_wide_product(
    node: Node, r: Rewriter, weights: list[Value], sizes: tuple[int, int, int], accuracy_level: int
) -> None:
    """`sizes`: rows and columns of the matrix, weights of a block."""
    rows, columns, block = sizes
    attributes = {"K": columns, "N": rows, "bits": 8, "block_size": block, "accuracy_level": accuracy_level}
    operands = [node.operand(0), *weights]
    r.emit("com.microsoft.MatMulNBits", operands, node.outputs, attributes, node.scope)


def _in_blocks(data: Weight, count: int, block: int, r: Rewriter) -> Weight:
    """The data i8[N, …] as u8[N, blocks, block], moved up by 128."""
    rows, *sizes = cast("tuple[int, ...]", data.shape)
    columns = math.prod(sizes)
    assert data.source is not None
    source = Step(
        "add", (128,), Step("cast", ("u8",), data.source)
    )  # a cast to u8 wraps, and so does the sum
    if missing := count * block - columns:
        source = Step("pad", (1, missing), source)
    shape = (rows, count, block)
    if data.shape != shape:
        source = Step("reshape", shape, source)
    return Weight(r.name(f"{data.name}.blocks"), "u8", shape, source=source)


def _spread(scales: Weight, count: int, r: Rewriter) -> Weight:
    assert scales.source is not None
    (rows,) = cast("tuple[int]", scales.shape)
    source = Step("spread", (count,), scales.source)
    return Weight(r.name(f"{scales.name}.blocks"), scales.dtype, (rows, count), source=source)


def _write_dynamic_product(node: Node, r: Rewriter, steps: int) -> None:
    """MatMulIntegerToFloat: activations in u8 with a scale for every row, weights [K, N] in i8 with one a column.

    The largest magnitude of a row is `steps`.

    DynamicQuantizeMatMul has one scale for all rows of a step. Then a row depends on its neighbours, so that a prompt
    in chunks is not the prompt in one piece, and one row of large numbers (a first token often is) costs all others
    their digits: on the storyteller a KL divergence of 0.0010 instead of 0.0001. Rows cost 0-4 % of a decoded token.
    Both are 1.7 times as fast over a whole prompt as MatMulNBits with 8 bits.
    """
    x, data, scales = node.inputs
    assert x is not None
    wide = x if x.dtype == "f32" else r.once(("wide", x), lambda: _cast(x, "f32", r))
    integers, largest = r.once(("rows", wide), lambda: _quantized_rows(wide, r, steps))
    matrix = r.once(("turned", data), lambda: _turned(cast("Weight", data), r))
    factors = r.once(("factors", scales), lambda: _wide_scales(cast("Weight", scales), r))
    output = node.outputs[0]
    operands = [integers, matrix, _step(r, steps), factors, _zero(r, steps)]
    sums = r.op("com.microsoft.MatMulIntegerToFloat", operands, "f32", output.shape, f"{node.name}.steps")
    if output.dtype == "f32":
        r.emit("Mul", [sums, largest], [output], {}, node.scope)
        return
    product = r.op("Mul", [sums, largest], "f32", output.shape, f"{node.name}.f32")
    r.emit("Cast", [product], [output], {"to": _onnx(output)}, node.scope)


def _cast(x: Value, dtype: str, r: Rewriter) -> Value:
    return r.op("Cast", [x], dtype, x.shape, f"{x.name}.{dtype}", to=BY_SHORT[dtype].onnx)


def _onnx(value: Value) -> int:
    return BY_SHORT[value.dtype or ""].onnx


def _wide_scales(scales: Weight, r: Rewriter) -> Weight:
    """The scales as float32, which is what they are before they are cast to a narrower type of activations."""
    source = scales.source
    if not isinstance(source, Step) or source.op != "cast":
        return scales
    return Weight(r.name(f"{scales.name}.f32"), "f32", scales.shape, source=source.source)


def _quantized_rows(x: Value, r: Rewriter, steps: int) -> tuple[Value, Value]:
    """X with the largest magnitude of each row as so many steps, and these magnitudes [..., 1].

    A row of zeros is divided by zero; whatever integers that gives, their product is multiplied by zero again.
    """
    shape = (*(x.shape or ())[:-1], 1)
    sizes = r.op("Abs", [x], x.dtype, x.shape, f"{x.name}.abs")
    largest = r.op("ReduceMax", [sizes, r.integers(-1)], x.dtype, shape, f"{x.name}.largest", keepdims=1)
    within = r.op("Div", [x, largest], x.dtype, x.shape, f"{x.name}.within")
    return r.op(
        "QuantizeLinear", [within, _step(r, steps), _zero(r, steps)], "u8", x.shape, f"{x.name}.u8"
    ), largest


def _step(r: Rewriter, steps: int) -> Constant:
    return r.constant(np.array(1 / steps, np.float32), "step")


def _zero(r: Rewriter, steps: int) -> Constant:
    return r.constant(np.array(steps + 1, np.uint8), "zero")


def _turned(data: Weight, r: Rewriter) -> Weight:
    """The data [N, K] as [K, N], as integer products want it."""
    assert data.source is not None
    shape = tuple(reversed(data.shape or ()))
    return Weight(
        r.name(f"{data.name}.turned"), data.dtype, shape, source=Step("transpose", (1, 0), data.source)
    )


def lower_quantized_gather(node: Node, r: Rewriter) -> bool:
    """4 bits: com.microsoft.GatherBlockQuantized, whose CPU kernel takes u8 data [N, K / 2] along the last axis.

    8 bits: the rows and their scales are picked, then multiplied; blocks that span a row are none of its sizes, and
    those of a tied head are moved up by 128, which that kernel does not know.
    """
    write = _by_format(
        node, int4=_write_block_rows, int8=_write_scaled_rows, int8_blocks=_write_rows_of_scaled_blocks
    )
    write(node, r)
    return True


def _write_block_rows(node: Node, r: Rewriter) -> None:
    data, scales, indices = node.inputs
    flat = r.once(("flat", data), lambda: _flat(cast("Weight", data), r))
    attributes = {"bits": 4, "block_size": node.attributes["block"], "gather_axis": 0, "quantize_axis": 1}
    operands = [flat, indices, scales]
    r.emit("com.microsoft.GatherBlockQuantized", operands, node.outputs, attributes, node.scope)


def _flat(data: Weight, r: Rewriter) -> Weight:
    """The same bytes as u8[N, K / 2]."""
    rows, blocks, half = cast("tuple[int, int, int]", data.shape)
    shape = (rows, blocks * half)
    source = Step("reshape", shape, cast("Step", data.source))
    return Weight(r.name(f"{data.name}.flat"), data.dtype, shape, source=source)


def _picked_rows(data: Weight, indices: Value, output: Value, r: Rewriter) -> Value:
    """Rows of the table as integers: columns of a tied head where there is one, so that it is stored once."""
    base = f"{output.name}.i8"
    if not any(user.op == QUANTIZED_MATMUL.name for user in r.users.get(data, ())):
        return r.op("Gather", [data, indices], "i8", output.shape, base, axis=0)
    *leading, width = output.shape or ()
    matrix = r.once(("turned", data), lambda: _turned(data, r))
    columns = r.op("Gather", [matrix, indices], "i8", (width, *leading), f"{base}.columns", axis=1)
    order = (*range(1, len(leading) + 1), 0)
    return r.op("Transpose", [columns], "i8", output.shape, base, perm=order)


def _write_scaled_rows(node: Node, r: Rewriter) -> None:
    data, scales, indices = node.inputs
    assert scales is not None
    assert indices is not None
    output = node.outputs[0]
    rows = _picked_rows(cast("Weight", data), indices, output, r)
    wide = r.op("Cast", [rows], output.dtype, output.shape, f"{node.name}.wide", to=_onnx(output))
    picked = r.op("Gather", [scales, indices], scales.dtype, indices.shape, f"{node.name}.scale", axis=0)
    shape = (*(indices.shape or ()), 1)
    factors = r.op("Unsqueeze", [picked, r.integers(-1)], scales.dtype, shape, f"{node.name}.factors")
    r.emit("Mul", [wide, factors], [output], {}, node.scope)


def _write_rows_of_scaled_blocks(node: Node, r: Rewriter) -> None:
    data, scales, indices = node.operands
    output = node.outputs[0]
    _, count, block = cast("tuple[int, int, int]", data.shape)
    leading = indices.shape or ()
    blocks = r.once(("blocks", data), lambda: _in_blocks(cast("Weight", data), count, block, r))
    picked = r.op("Gather", [blocks, indices], "u8", (*leading, count, block), f"{output.name}.u8", axis=0)
    above = r.op("Cast", [picked], output.dtype, picked.shape, f"{node.name}.above", to=_onnx(output))
    zero = r.once(("zero", output.dtype), lambda: r.constant(_number(128, output), "zero"))
    wide = r.op("Sub", [above, zero], output.dtype, picked.shape, f"{node.name}.wide")
    own = r.op("Gather", [scales, indices], scales.dtype, (*leading, count), f"{node.name}.scale", axis=0)
    factors = r.op(
        "Unsqueeze", [own, r.integers(-1)], own.dtype, (*leading, count, 1), f"{node.name}.factors"
    )
    whole = r.op("Mul", [wide, factors], output.dtype, picked.shape, f"{node.name}.blocks")
    shape = r.integers(*(0 for _ in leading), -1)  # 0: as it is
    r.emit("Reshape", [whole, shape], [output], {}, node.scope)


def _number(number: float, like: Value) -> Array:
    """A scalar of the type of a value."""
    return np.array(number, BY_SHORT[like.dtype or ""].numpy)
