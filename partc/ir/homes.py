"""The sub-modules of a graph that its nodes and values belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partc.ir.graph import Input, Node, Submodule, Value


def homes(submodules: Sequence[Submodule]) -> dict[Node, int]:
    """For every node that is not shared the index of its sub-module."""
    return {node: submodule.index for submodule in submodules for node in submodule.nodes}


def maker_of(value: Value, home: Mapping[Node, int]) -> int | None:
    """The sub-module that a value comes from; None for what exists on every device."""
    if isinstance(value, Input):
        return None if value.is_step else 0
    return home.get(value.producer) if value.producer is not None else None
