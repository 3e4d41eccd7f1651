"""Costs that several operators have in common."""

from __future__ import annotations

from partc.ir.graph import Node
from partc.ir.workload import Step


def all_bytes(node: Node, step: Step) -> int:
    """Operands and results."""
    return sum(value.bytes(step.sizes) for value in (*node.operands, *node.outputs))


def no_scratch(node: Node, step: Step) -> int:
    """None."""
    return 0
