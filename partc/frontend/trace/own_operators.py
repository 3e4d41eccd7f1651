"""Operators of ours in a program that torch traces."""

from __future__ import annotations

from partc.ir.operators.operator import Operator


def symbolic_name(operator: Operator) -> str:
    """The name of an operator as torch wants it: `partc::Attention`."""
    return operator.name.replace(".", "::")
