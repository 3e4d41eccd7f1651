"""`find-cuts`: the nodes before which the graph may be cut (LinguaLinked Eq. 1).

Pictures and sound stay on the source (EdgeShard, Eq. 4), whatever the rule: where a model of transformers takes
them, nothing is cut before they are embedded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from partc.errors import UserError
from partc.ir.flow import free_nodes, light_nodes, schedule, widths
from partc.ir.graph import Graph, Module, Node
from partc.ir.privacy import behind_raw
from partc.ir.view import view
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default


@dataclass(frozen=True)
class FindCuts(Pass):
    """Mark the candidate nodes; the graph itself stays as it is."""

    name: ClassVar[str] = "find-cuts"
    requires: ClassVar[str | None] = "sized"
    ensures: ClassVar[str | None] = "sized"

    rule: str = Default("eq1+frontier")
    """`eq1`: the paper's. `eq1+frontier`: also where one activation crosses, and never where more do. `all`: wherever
    something is computed."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.candidates`."""
        graph = module.graph
        found = find_cuts(graph, self.rule)
        if module.info.task != "graph":  # what an ONNX graph takes, nobody says
            found = behind_raw(graph, schedule(graph, free_nodes(graph)), found)
        changed = found != module.candidates
        module.candidates = found
        return changed


def find_cuts(graph: Graph, rule: str = "eq1+frontier") -> list[Node]:
    """The candidates under `rule`, in topological order.

    Raises:
        UserError: there is no such rule.
    """
    if rule not in RULES:
        raise UserError(f"unknown cut rule {rule!r}", where="find-cuts", hint=f"rules: {', '.join(RULES)}")
    return _FIND[rule](graph)


def eq1_candidates(graph: Graph) -> list[Node]:
    """LinguaLinked Eq. 1: C = {v in V | deg+(v) > 1 and deg-(v) = 1}, counting distinct neighbours."""
    whole = view(graph)
    return [node for node in graph.nodes if whole.out_degree(node) > 1 and whole.in_degree(node) == 1]


def frontier_candidates(graph: Graph) -> list[Node]:
    """Eq. 1 where it cuts well, and every other place that does: before which a single activation crosses.

    Differs from the paper, whose rule finds nothing where q, k and v are one product (GPT-2, GPT-NeoX) and
    cuts inside the attention of post-norm models: a candidate that several activations cross is dropped.
    What does not count as an activation stands in `partc.ir.flow`. One sweep over the frontier; O(V + E).
    """
    free = free_nodes(graph)
    light = light_nodes(graph, free)
    order = schedule(graph, free)
    eq1 = set(eq1_candidates(graph))
    places = zip(order, widths(graph, order, light), strict=True)
    return [
        node for node, width in places if node not in light and width <= 1 and (width == 1 or node in eq1)
    ]


def all_candidates(graph: Graph) -> list[Node]:
    """Every node that computes something with weights, or with what was computed so."""
    free = free_nodes(graph)
    light = light_nodes(graph, free)
    return [node for node in schedule(graph, free) if node not in light]


_FIND: Mapping[str, Callable[[Graph], list[Node]]] = {
    "eq1": eq1_candidates,
    "eq1+frontier": frontier_candidates,
    "all": all_candidates,
}
RULES = tuple(_FIND)
"""The names of the rules."""
