"""`form-submodules`: the intervals between layers of candidates (LinguaLinked Eq. 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from partc.errors import UserError
from partc.ir.flow import behind, free_nodes, light_nodes, schedule, widths
from partc.ir.graph import Graph, Module, Node, Submodule
from partc.pipeline.contract import Context, Pass

EVERYWHERE = -1
"""Stands for the nodes that all sub-modules share, where a level is expected."""


@dataclass(frozen=True)
class FormSubmodules(Pass):
    """Order the graph and divide it at its candidates; without any it is one sub-module."""

    name: ClassVar[str] = "form-submodules"
    requires: ClassVar[str | None] = "sized"
    ensures: ClassVar[str | None] = "formed"

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.submodules` and reorder `module.graph.nodes` to match.

        Raises:
            UserError: there is nothing to divide.
        """
        if not module.graph.nodes:
            what = "the model computes nothing: its outputs are inputs or constants"
            raise UserError(what, where=f"graph {module.graph.name}", hint="is it the model that you mean?")
        before = list(module.graph.nodes), _shape(module.submodules)
        module.submodules = arrange(module.graph, layers(module.graph, module.candidates or ()))
        return before != (module.graph.nodes, _shape(module.submodules))


def _shape(submodules: Sequence[Submodule] | None) -> list[list[Node]] | None:
    return None if submodules is None else [submodule.nodes for submodule in submodules]


def layers(graph: Graph, candidates: Iterable[Node]) -> dict[Node, int]:
    """For every node that is not free the number of its sub-module, in the order of execution.

    Eq. 2 puts a node v into s_j when l_j <= v < l_(j+1): behind a candidate of layer j, and behind none of
    layer j + 1. Candidates of which neither lies behind the other are one layer. The paper leaves open
    where a node goes that no candidate leads to; here a candidate that one activation crosses is a barrier:
    all that is scheduled behind it belongs behind it (the second branch of a parallel residual, say). O(V +
    E).
    """
    free = free_nodes(graph)
    order = schedule(graph, free)
    chosen = set(candidates)
    level: dict[Node, int] = {}
    floor = highest = 0
    for node, width in zip(order, widths(graph, order, light_nodes(graph, free)), strict=True):
        makers = (value.producer for value in node.operands)
        own = max((level[maker] for maker in makers if maker in level), default=0)
        if node in chosen and width <= 1:
            floor = highest + 1
        elif node in chosen:
            own += 1
        level[node] = max(own, floor)
        highest = max(highest, level[node])
    return level


def arrange(graph: Graph, level: Mapping[Node, int]) -> list[Submodule]:
    """Sub-modules by rising level; `graph.nodes` is put into their order.

    Nodes without a level are free: those that several sub-modules need come first and belong to all of
    them; one that a single sub-module needs stands right before its first use there. O(V + E).
    """
    numbers = {old: new for new, old in enumerate(sorted(set(level.values())))}
    own = _homes_of_free(graph, level)
    shared = [node for node in graph.nodes if node not in level and node not in own]
    submodules = [Submodule(number, []) for number in numbers.values()]
    placed = set(shared)
    for node in sorted(level, key=level.__getitem__):
        # All that it needs and is not placed yet are free nodes of this sub-module alone.
        chain = behind(node, placed)
        submodules[numbers[level[node]]].nodes += chain
        placed.update(chain)
    graph.nodes = [*shared, *(node for submodule in submodules for node in submodule.nodes)]
    return submodules


def _homes_of_free(graph: Graph, level: Mapping[Node, int]) -> dict[Node, int]:
    """The level that alone needs a free node, for those that one alone needs."""
    users: dict[Node, set[int]] = {node: {number} for node, number in level.items()}
    for node in reversed(graph.nodes):
        # Nobody's: a result of the graph that every device could make. It is shared, and so is all behind it.
        levels = users.setdefault(node, {EVERYWHERE})
        for value in node.operands:
            if value.producer is not None and value.producer not in level:
                users.setdefault(value.producer, set()).update(levels)
    return {
        node: next(iter(levels))
        for node, levels in users.items()
        if node not in level and len(levels) == 1 and EVERYWHERE not in levels
    }
