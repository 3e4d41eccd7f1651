"""Operands, attributes and arithmetic that the operators on quantised weights share (`partc.ir.weight_formats`)."""

from __future__ import annotations

from typing import Any

from partc.format.dims import evaluate
from partc.ir.graph import Node
from partc.ir.operators.operator import AttributeSpec, Tensor
from partc.ir.weight_formats import format_of
from partc.ir.weights import Array
from partc.ir.workload import Step

DATA4 = Tensor("data", "u8", "N, blocks, half", "values of 4 bits, two a byte; half = block / 2")
SCALES4 = Tensor("scales", "T", "N, blocks", "a scale for every block of a row")
OFFSETS4 = Tensor(
    "offsets",
    "T",
    "N, blocks",
    "a number that is added to every weight of a block; rows have whole blocks",
    optional=True,
)
DATA8 = Tensor("data", "i8", "N, K", "values of 8 bits")
SCALES8 = Tensor("scales", "T", "N", "a scale for every row")
FORMS = ((4, (DATA4, SCALES4)), (8, (DATA8, SCALES8)))
"""Bits of a weight, with the operands that it is stored in."""

ATTRIBUTES = (
    AttributeSpec("bits", int, None, "4 or 8: bits of a weight"),
    AttributeSpec("block", int, 0, "weights of a row that share a scale, with 4 bits; 0 with 8 bits"),
)


def bits_of(node: Node) -> int:
    """Bits of a weight of a node that has such weights."""
    bits = node.attributes["bits"]
    assert isinstance(bits, int)
    return bits


def matrix_of(data: Array, scales: Array, bits: float) -> Any:
    """The matrix [N, K] in float32 that data and scales stand for; K is filled up to whole blocks."""
    return format_of(bits).dequantize(data, scales)


def product_flops(node: Node, step: Step) -> int:
    """A multiplication and an addition for every weight and row."""
    x = node.operand(0)
    assert x.shape is not None
    return 2 * node.outputs[0].elements(step.sizes) * evaluate(x.shape[-1], step.sizes)
