"""Readers of a node for emitters: sizes, types, attributes, and operands that are known when compiling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from tvm import relax

from partc.errors import UserError
from partc.ir.graph import Constant, Node, Value
from partc.ir.types import BY_SHORT
from targets.tvm.builder import Expr


def shape_of(node: Node, place: int = 0) -> tuple[int, ...]:
    """Sizes of an output."""
    return tuple(int(size) for size in node.outputs[place].shape or ())


def input_shape(node: Node, place: int = 0) -> tuple[int, ...]:
    """Sizes of an operand."""
    return tuple(int(size) for size in operand(node, place).shape or ())


def operand(node: Node, place: int) -> Value:
    """An operand that must be there."""
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        raise unsupported(node, f"without its operand {place}")
    return value


def has(node: Node, place: int) -> bool:
    """Whether an operand is there."""
    return place < len(node.inputs) and node.inputs[place] is not None


def dtype_of(node: Node, place: int = 0) -> str:
    """TVM's name of the element type of an operand."""
    return BY_SHORT[operand(node, place).dtype or ""].long


def result_dtype(node: Node, place: int = 0) -> str:
    """TVM's name of the element type of an output."""
    return BY_SHORT[node.outputs[place].dtype or ""].long


def constant(node: Node, place: int) -> Any:
    """The values of an operand that must be known when compiling.

    Raises:
        UserError: it is computed when the graph runs.
    """
    value = operand(node, place)
    if not isinstance(value, Constant) or value.array is None:
        raise unsupported(node, f"with operand {place} known only when it runs")
    return value.array


def integer(node: Node, name: str, default: int) -> int:
    """A whole number among the attributes."""
    return int(cast("int", node.attributes.get(name, default)))


def decimal(node: Node, name: str, default: float) -> float:
    """A number among the attributes."""
    return float(cast("float", node.attributes.get(name, default)))


def integers(node: Node, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """Whole numbers among the attributes."""
    return tuple(cast("tuple[int, ...]", node.attributes.get(name, tuple(default))))


def text(node: Node, name: str, default: str) -> str:
    """A word among the attributes."""
    return str(node.attributes.get(name, default))


def listed(node: Node, place: int, name: str) -> tuple[int, ...] | None:
    """Whole numbers that older opsets have as an attribute and newer ones as an operand; None: in neither."""
    if has(node, place):
        return tuple(int(number) for number in constant(node, place).reshape(-1))
    return integers(node, name, ()) if name in node.attributes else None


def axis_of(node: Node, default: int, name: str = "axis") -> int:
    """An axis of the first operand, counted from the front."""
    return integer(node, name, default) % max(1, len(input_shape(node)))


def number(value: float, dtype: str) -> Expr:
    """A constant scalar."""
    return relax.const(np.array(value), dtype)


def array(values: Any) -> Expr:
    """A constant tensor of exactly the type of these values; left alone, TVM halves numbers of 64 bits."""
    return relax.const(values, str(values.dtype))


def lowest(dtype: str) -> Expr:
    """The least finite number of a type: what hides a score from a softmax and stays finite."""
    import ml_dtypes

    return number(float(ml_dtypes.finfo(dtype).min), dtype)  # type: ignore[no-untyped-call]


def unsupported(node: Node, what: str) -> UserError:
    """The error for a form of a node that the target has no code for."""
    return UserError(
        f"the tvm target has no code for {node.op} {what}",
        where=node.place,
        hint="use `target: ort` for this device",
    )
