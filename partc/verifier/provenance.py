"""Values of a rewritten graph, computed from the tensors of the original that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.ir.evaluate import evaluate_node
from partc.ir.graph import Constant, Node, Value

Array = npt.NDArray[Any]


def origins(values: Iterable[Value], known: Callable[[str], bool], most: int) -> set[str]:
    """The tensors of the original that are needed to tell what `values` are.

    Args:
        values: those that are compared.
        known: whether the original has a tensor of this name.
        most: nodes between a value and tensors of the original.
    """
    found: set[str] = set()
    waiting, left = list(values), most
    while waiting:
        value = waiting.pop()
        if value.origin is not None and known(value.origin):
            found.add(value.origin)
        elif value.producer is not None and left:
            left -= 1
            waiting += value.producer.operands
    return found


def compute(
    values: Mapping[str, Value], tensors: Mapping[str, Array], opset: int, most: int
) -> dict[str, Array | None]:
    """The contents of `values`; None for one that cannot be told.

    A value is the tensor of the original that it is by origin, or what its node makes of values that are known so.
    """
    return {name: _value(value, tensors, opset, most) for name, value in values.items()}


def _value(value: Value, tensors: Mapping[str, Array], opset: int, most: int) -> Array | None:
    if value.origin in tensors:
        return np.asarray(tensors[str(value.origin)])
    if isinstance(value, Constant):
        return value.array
    node = value.producer
    if node is None or not most:
        return None
    made = _node(node, tensors, opset, most - 1)
    return None if made is None else made[node.outputs.index(value)]


def _node(node: Node, tensors: Mapping[str, Array], opset: int, most: int) -> list[Array] | None:
    operands = [None if one is None else _value(one, tensors, opset, most) for one in node.inputs]
    if any(found is None and one is not None for found, one in zip(operands, node.inputs, strict=True)):
        return None
    return evaluate_node(node, operands, opset)
