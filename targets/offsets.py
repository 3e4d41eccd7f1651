"""Products whose weights have offsets, in operators that every target has.

    partc.QuantizedMatMul(x, data, scales, offsets)
      = partc.QuantizedMatMul(x, data, scales) + MatMul(sums of x over blocks, offsetsᵀ)

W = (value - 8) · scale + offset holds for every weight of a block, so that the second part of x · Wᵀ needs no more of x
than the sum of each block: one number for `block` of them. So zero points cost no kernels of their own, and of 4 bits
in blocks of 128 a sixteenth of the bytes. Products that read the same x share its sums.
"""

from __future__ import annotations

from typing import cast

from partc.ir.graph import Node, Value, Weight
from partc.ir.operators import QUANTIZED_MATMUL
from partc.ir.weights import Step
from targets.rewrite import Rewriter


def lower_offsets(node: Node, r: Rewriter) -> bool:
    """Write a product with offsets as the sum above; False: it has none."""
    if len(node.inputs) < 4 or node.inputs[3] is None:
        return False
    x, data, scales, offsets = node.operands
    output, block = node.outputs[0], cast("int", node.attributes["block"])
    plain = r.value(f"{output.name}.product", output.dtype, output.shape)
    r.emit(QUANTIZED_MATMUL.name, [x, data, scales], [plain], node.attributes, node.scope)
    sums = r.once(("sums", x, block), lambda: _sums(x, block, node.scope, r))
    turned = r.once(("turned", offsets), lambda: _turned(cast("Weight", offsets), r))
    added = r.value(f"{output.name}.offsets", output.dtype, output.shape)
    r.emit("MatMul", [sums, turned], [added], {}, node.scope)
    r.emit("Add", [plain, added], [output], {}, node.scope)
    return True


def _sums(x: Value, block: int, scope: str, r: Rewriter) -> Value:
    """The sums of the blocks of each row."""
    *outer, columns = x.shape or ()
    blocks = cast("int", columns) // block
    grouped = r.value(f"{x.name}.blocks", x.dtype, (*outer, blocks, block))
    shape = r.integers(*(0 for _ in outer), blocks, block)  # 0: as it is
    r.emit("Reshape", [x, shape], [grouped], {}, scope)
    sums = r.value(f"{x.name}.sums", x.dtype, (*outer, blocks))
    r.emit("ReduceSum", [grouped, r.integers(-1)], [sums], {"keepdims": 0}, scope)
    return sums


def _turned(offsets: Weight, r: Rewriter) -> Weight:
    rows, blocks = cast("tuple[int, int]", offsets.shape)
    assert offsets.source is not None
    source = Step("transpose", (1, 0), offsets.source)
    return Weight(r.name(f"{offsets.name}.turned"), offsets.dtype, (blocks, rows), source=source)
