"""Operands, attributes and arithmetic that the operators on quantised weights share (`partc.ir.weight_formats`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partc.format.dims import evaluate
from partc.ir.graph import Node
from partc.ir.operators.operator import AttributeSpec, Tensor
from partc.ir.weight_formats import WeightFormat, format_of
from partc.ir.weights import Array
from partc.ir.workload import Step

DATA4 = Tensor("data", "u8", "N, blocks, half", "values of 4 bits, two a byte; half = block / 2")
BLOCK_SCALES = Tensor("scales", "T", "N, blocks", "a scale for every block of a row")
OFFSETS = Tensor(
    "offsets",
    "T",
    "N, blocks",
    "a number that is added to every weight of a block; rows have whole blocks",
    optional=True,
)
DATA8 = Tensor("data", "i8", "N, K", "values of 8 bits")
ROW_SCALES = Tensor("scales", "T", "N", "a scale for every row")
DATA8_BLOCKS = Tensor("data", "i8", "N, blocks, block", "values of 8 bits")


@dataclass(frozen=True)
class Form:
    """A way to store a quantised matrix."""

    where: Mapping[str, int]
    """The attributes that choose it, of the forms before it none."""
    operands: tuple[Tensor, ...]
    offsets: tuple[Tensor, ...]
    """Operands that may follow them in a product."""
    columns: str
    """The numbers of a row, filled up to whole blocks."""


FORMS = (
    Form({"bits": 4}, (DATA4, BLOCK_SCALES), (OFFSETS,), "2*blocks*half"),
    Form({"bits": 8, "block": 0}, (DATA8, ROW_SCALES), (), "K"),
    Form({"bits": 8}, (DATA8_BLOCKS, BLOCK_SCALES), (OFFSETS,), "blocks*block"),
)
"""Every form, those with more conditions first."""

ATTRIBUTES = (
    AttributeSpec("bits", int, None, "4 or 8: bits of a weight"),
    AttributeSpec("block", int, 0, "weights of a row that share a scale; 0: all of them do, with 8 bits"),
)


def bits_of(node: Node) -> int:
    """Bits of a weight of a node that has such weights."""
    bits = node.attributes["bits"]
    assert isinstance(bits, int)
    return bits


def format_of_node(node: Node) -> WeightFormat:
    """The format of a node's weights."""
    return format_of(bits_of(node), block_of(node))


def block_of(node: Node) -> int:
    """Weights of a row that share a scale, of a node that has quantised weights; 0: all of them."""
    block = node.attributes.get("block", 0)
    assert isinstance(block, int)
    return block


def matrix_of(data: Array, scales: Array, attributes: Mapping[str, int | float]) -> Any:
    """The matrix [N, K] in float32 that data and scales stand for; K is filled up to whole blocks."""
    return format_of(attributes["bits"], attributes["block"]).dequantize(data, scales)


def product_flops(node: Node, step: Step) -> int:
    """A multiplication and an addition for every weight and row."""
    x = node.operand(0)
    assert x.shape is not None
    return 2 * node.outputs[0].elements(step.sizes) * evaluate(x.shape[-1], step.sizes)
