"""The edges of a planning problem: the values that go from one sub-module of a model to another."""

from __future__ import annotations

from partc.ir.graph import Module
from partc.ir.once import once_values
from partc.ir.workload import Step
from partc.planner.model.problem import Edge


def edges_of(module: Module, step: Step) -> tuple[Edge, ...]:
    """The edges of one step of a mapped module, by sender and receiver."""
    dependencies = {**(module.sdm or {}), **(module.rdm or {})}
    known = once_values(module.graph) if step.name == "decode" else ()
    return tuple(
        Edge(source, target, value.bytes(step.sizes), value.name)
        for (source, target), values in sorted(dependencies.items())
        for value in values
        if value not in known
    )
