"""Nodes on quantised weights as nodes on panels (`partc.ir.panels`), and on activations that are quantised once.

| node | becomes |
| --- | --- |
| `partc.QuantizedMatMul(x, data, scales)` | `tvm.QuantizedProduct(q, panels)` |
| `partc.QuantizedGather(data, scales, indices)` | `tvm.QuantizedRows(panels, indices)` |
| `partc.QuantizedExperts(x, chosen, (data, scales)…)` | `tvm.QuantizedExperts(q, chosen, panels)` |

q is `tvm.QuantizeActivations(x)`, one for all products of x that need the same sums of it (`sums_of`); a table and the
head that is tied to it share their panels. The attribute `depth` is the number of weights in a row, filled up to
whole blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from partc.errors import InternalError
from partc.ir.graph import Attribute, Graph, Node, Value, Weight
from partc.ir.operators import QUANTIZED_EXPERTS, QUANTIZED_GATHER, QUANTIZED_MATMUL
from partc.ir.operators.quantized import bits_of, block_of
from partc.ir.panels import BLOCK, LANES, panels_shape, scales_of_block
from partc.ir.weight_formats import by_format
from partc.ir.weights import Join, Step, WeightExpr
from targets.offsets import lower_offsets
from targets.rewrite import Rewriter, rewrite

ACTIVATIONS, PRODUCT = "tvm.QuantizeActivations", "tvm.QuantizedProduct"
GATHER, EXPERTS = "tvm.QuantizedRows", "tvm.QuantizedExperts"
OPERATORS = (ACTIVATIONS, PRODUCT, GATHER, EXPERTS)
Rows = Callable[[Value, Weight, Node, Rewriter], Value]
"""x, a matrix, the node → what the product takes of x."""
WORDS = BLOCK // 4
"""Words of a block of quantised activations."""
UNIT = WORDS + 1
"""Words of 32 activations for weights in blocks: the bytes and the scale, behind which the starts of sums stand."""


def write_quantized(graphs: Sequence[Graph], *, bytes_of_x: bool = True) -> None:
    """Rewrite static graphs as the table says, in place; without `bytes_of_x`, x stands in place of q. O(nodes)."""
    rows = _rows if bytes_of_x else _as_they_are
    lowerings: dict[str, Callable[[Node, Rewriter], bool]] = {
        QUANTIZED_MATMUL.name: partial(_product, rows),
        QUANTIZED_GATHER.name: _gather,
        QUANTIZED_EXPERTS.name: partial(_experts, rows),
    }
    for graph in graphs:
        rewrite(graph, {QUANTIZED_MATMUL.name: lower_offsets})
        rewrite(graph, lowerings)


def row_words(depth: int, sums: int) -> int:
    """Words of a quantised row of so many numbers, with so many sums of each 32 of them; 0: with a scale for the row.

    Blocks come in pairs, as in panels of 4 bits.
    """
    return 2 * (UNIT + sums) * -(-depth // (2 * BLOCK)) if sums else WORDS * -(-depth // BLOCK) + 1


def sums_of(bits: int, block: int) -> int:
    """The sums that 32 activations need for weights of such a format: one for every scale; 0: a row has one scale."""
    return by_format(bits, block, int4=1, int8=0, int8_blocks=scales_of_block(block))


def stored_bytes(weight: Weight) -> int:
    """Bytes of a weight as the files have it; data and scales of a matrix are parts of its panels."""
    match weight.source:
        case Step(op="quantize" | "integers", arguments=arguments):
            bits, block, *_ = cast("tuple[int, int]", arguments)
            whole = 4 * math.prod(panels_shape(*_sizes(weight), bits, block))
            return whole - _scales_bytes(*_sizes(weight), bits, block)
        case (
            Step(op="scales" | "factors", arguments=arguments)
            | Step(source=Step(op="scales" | "factors", arguments=arguments))
        ):
            bits, block, *_ = cast("tuple[int, int]", arguments)
            rows, *blocks = (int(size) for size in weight.shape or ())
            return _scales_bytes(rows, math.prod(blocks) * block, bits, block)
        case _:
            return weight.bytes({})


def _scales_bytes(rows: int, columns: int, bits: int, block: int) -> int:
    """Of 4 bits 16 of 144 words; of 8 bits two rows of a panel, in blocks 8 or 16 of 136 or 144 words."""
    groups, steps, *_ = panels_shape(rows, columns, bits, block)
    in_blocks = steps * scales_of_block(block) * LANES // 2
    return groups * by_format(bits, block, int4=steps * 4 * LANES, int8=2 * LANES, int8_blocks=in_blocks) * 4


def _product(rows_of: Rows, node: Node, r: Rewriter) -> bool:
    x, data, scales = node.operand(0), cast("Weight", node.inputs[1]), cast("Weight", node.inputs[2])
    rows, panels = rows_of(x, data, node, r), _panels(data, scales, node, r)
    r.emit(PRODUCT, [rows, panels], node.outputs, _attributes(data, node), node.scope)
    return True


def _gather(node: Node, r: Rewriter) -> bool:
    data, scales = cast("Weight", node.inputs[0]), cast("Weight", node.inputs[1])
    attributes = {"bits": bits_of(node), "block": block_of(node), "rows": _sizes(data)[0]}
    r.emit(GATHER, [_panels(data, scales, node, r), node.inputs[2]], node.outputs, attributes, node.scope)
    return True


def _experts(rows_of: Rows, node: Node, r: Rewriter) -> bool:
    x, chosen, *weights = node.operands
    matrices = [cast("Weight", data) for data in weights[::2]]
    both = [cast("Weight", value) for value in weights]
    panels = r.once(("experts", *matrices), lambda: _stack(both, node, r))
    operands = [rows_of(x, matrices[0], node, r), chosen, panels]
    r.emit(EXPERTS, operands, node.outputs, _attributes(matrices[0], node), node.scope)
    return True


def _as_they_are(x: Value, data: Weight, node: Node, r: Rewriter) -> Value:
    return x


def _rows(x: Value, data: Weight, node: Node, r: Rewriter) -> Value:
    """The rows of x as bytes, for weights such as these."""
    depth, sums = _sizes(data)[1], sums_of(bits_of(node), block_of(node))

    def make() -> Value:
        many = math.prod(int(size) for size in (x.shape or ())[:-1])
        rows = r.value(f"{x.name}.bytes", "i32", (many, row_words(depth, sums)))
        r.emit(ACTIVATIONS, [x], [rows], {"sums": sums, "depth": depth}, node.scope)
        return rows

    return r.once(("rows", x, depth, sums), make)


def _panels(data: Weight, scales: Weight, node: Node, r: Rewriter) -> Weight:
    return r.once(("panels", data), lambda: _weight(data, scales, node))


def _weight(data: Weight, scales: Weight, node: Node) -> Weight:
    """The panels of a matrix; the name is the same in every graph that reads the data."""
    shape = panels_shape(*_sizes(data), bits_of(node), block_of(node))
    return Weight(f"{data.name}.panels", "i32", shape, source=_source(data, scales))


def _stack(weights: Sequence[Weight], node: Node, r: Rewriter) -> Weight:
    """The panels of experts, whose data and scales take turns."""
    pairs = list(zip(weights[::2], weights[1::2], strict=True))
    one = _weight(*pairs[0], node)
    source = Join("stack", 0, tuple(_source(*pair) for pair in pairs))
    return Weight(f"{one.name}.stacked", "i32", (len(pairs), *(one.shape or ())), source=source)


def _source(data: Weight, scales: Weight) -> WeightExpr:
    match data.source:
        case Step(op="quantize", arguments=arguments, source=source):
            return Step("panels", arguments, source)
        case Step(op="integers", arguments=(bits, *_)) if scales.source is not None:
            return Join("panels", cast("int", bits), (data.source, _unrounded(scales.source)))
        case _:
            raise InternalError(f"%{data.name} is not the data of a quantised matrix")


def _unrounded(scales: WeightExpr) -> WeightExpr:
    """Scales as the checkpoint has them, whatever the model's precision is: those of panels are float16."""
    return scales.source if isinstance(scales, Step) and scales.op == "cast" else scales


def _attributes(data: Weight, node: Node) -> dict[str, Attribute]:
    return {"bits": bits_of(node), "block": block_of(node), "depth": _sizes(data)[1]}


def _sizes(data: Weight) -> tuple[int, int]:
    """Rows and columns of the matrix, columns filled up to whole blocks."""
    rows, *rest = (int(size) for size in data.shape or ())
    return rows, math.prod(rest) * (2 if data.dtype == "u8" else 1)  # two in a byte
