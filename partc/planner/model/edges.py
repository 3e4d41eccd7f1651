"""The values of a planning problem: what goes from one sub-module of a model to another, and home as a result."""

from __future__ import annotations

from partc.ir.graph import Module
from partc.ir.homes import homes, maker_of
from partc.ir.once import once_values
from partc.ir.workload import Step
from partc.planner.model.problem import Edge, Result

TOKEN_BYTES = 8
"""Size of a token in messages."""


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


def results_of(module: Module, step: Step) -> tuple[float, tuple[Result, ...]]:
    """Bytes of the results that the last sub-module makes in one step, and the results that others make.

    A model that generates has the token alone. What every device could make is made by the source.
    """
    if module.info.has_states:
        return TOKEN_BYTES * step.sizes["batch"], ()
    submodules = module.submodules or ()
    home = homes(submodules)
    last, found = 0.0, []
    for value in dict.fromkeys(module.graph.outputs):
        maker = maker_of(value, home)
        if maker == len(submodules) - 1:
            last += value.bytes(step.sizes)
        elif maker is not None:
            found.append(Result(maker, value.name, value.bytes(step.sizes)))
    return last, tuple(sorted(found, key=lambda result: result.maker))
