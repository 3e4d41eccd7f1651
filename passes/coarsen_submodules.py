"""`coarsen-submodules`: fewer, larger sub-modules; only cuts that a plan could want remain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from partc.errors import UserError
from partc.ir.effects import is_buffer
from partc.ir.flow import free_nodes, light_nodes, widths
from partc.ir.graph import Graph, ModelInfo, Module, State, Submodule, Value
from partc.ir.homes import homes
from partc.ir.workload import of_batch, workload
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.planner.model.layers import Span, layers_in
from passes.form_submodules import arrange
from passes.profile_submodules import crossing_bytes, profile_submodules

TINY = 0.02
"""A sub-module is glue if it holds and computes less than this part of what the largest ones do."""


@dataclass(frozen=True)
class CoarsenSubmodules(Pass):
    """Merge neighbours until every cut left is one that a plan could want."""

    name: ClassVar[str] = "coarsen-submodules"
    requires: ClassVar[str | None] = "formed"
    ensures: ClassVar[str | None] = "formed"

    max_submodules: int = 128
    """Never leave more than so many; what is beyond merges the smallest neighbours."""
    rule: str = Default("eq1+frontier")
    """That of `find-cuts`: with `eq1+frontier` no cut is left that more activations cross than the narrowest one."""
    none: bool = False
    """Keep the sub-modules as `form-submodules` made them."""

    def apply(self, module: Module, context: Context) -> bool:
        """Merge in `module.submodules`; nodes that only one is left to share sink into it."""
        if self.max_submodules < 1:
            raise UserError(
                "there must be at least one sub-module",
                where="coarsen-submodules{max_submodules}",
                hint="give 1 or more",
            )
        before = module.submodules or []
        if self.none or len(before) < 2:
            return False
        keep = coarsen(
            module.info, module.graph, before, self.max_submodules, narrow=self.rule == "eq1+frontier"
        )
        if len(keep) == len(before) - 1:
            return False
        module.submodules = merge(module.graph, before, keep)
        return True


def coarsen(
    info: ModelInfo, graph: Graph, submodules: Sequence[Submodule], most: int, *, narrow: bool = True
) -> list[int]:
    """The cuts to keep; cut j is the one before sub-module j.

    Dropped, in this order: cuts that a state would cross (its buffer would travel with every step), if `narrow` those
    that more activations cross than the narrowest one, cuts beside glue (a lone normalisation), and then
    the cuts between the smallest neighbours until `most` sub-modules are left. O(V + E + n^2) for n
    sub-modules.
    """
    closed = state_cuts(graph, submodules)
    cuts = [j for j in range(1, len(submodules)) if j not in closed]
    if narrow:
        counts = activation_counts(graph, submodules)
        narrowest = min((counts[j] for j in cuts), default=0)
        cuts = [j for j in cuts if counts[j] <= max(narrowest, 1)]
    weights = _weights(info, graph, submodules)
    crossing = crossing_bytes(graph, submodules, workload(info)[0])
    spans = [layers_in(submodule) for submodule in submodules]
    return limit_groups(absorb_glue(cuts, weights, crossing, spans), weights, most)


def absorb_glue(
    cuts: Sequence[int], weights: Sequence[float], crossing: Sequence[int], layers: Sequence[Span | None]
) -> list[int]:
    """Without the cuts beside groups that weigh next to nothing.

    Such a group joins the neighbour from which more bytes come or to which more go, so that the cheaper cut
    remains. Where both cost the same it joins the one of its layer: the normalisation that ends a layer of BERT stays
    with it. Where that does not decide, it joins what follows, as a normalisation does its reader.
    """
    left = list(cuts)
    while (
        glue := next((k for k, w in enumerate(_sums(left, weights)) if w < TINY), None)
    ) is not None and left:
        groups = _groups(left, layers)
        sides = [side for side in (glue - 1, glue) if 0 <= side < len(left)]
        reasons = [(crossing[left[side]], bool(groups[side] & groups[side + 1]), side) for side in sides]
        *_, side = max(reasons)
        del left[side]
    return left


def _groups(cuts: Sequence[int], layers: Sequence[Span | None]) -> list[frozenset[int]]:
    """The layers of every group between two cuts."""
    bounds = [0, *cuts, len(layers)]
    return [
        frozenset(number for span in layers[a:b] if span for number in range(span[0], span[1] + 1))
        for a, b in pairwise(bounds)
    ]


def limit_groups(cuts: Sequence[int], weights: Sequence[float], most: int) -> list[int]:
    """Without the cuts between the lightest neighbours, until at most `most` groups are left."""
    left = list(cuts)
    while len(left) >= most and left:
        sums = _sums(left, weights)
        del left[min(range(len(left)), key=lambda k: sums[k] + sums[k + 1])]
    return left


def _sums(cuts: Sequence[int], weights: Sequence[float]) -> list[float]:
    """The weight of every group between two cuts."""
    bounds = [0, *cuts, len(weights)]
    return [sum(weights[a:b]) for a, b in pairwise(bounds)]


def merge(graph: Graph, submodules: Sequence[Submodule], keep: Sequence[int]) -> list[Submodule]:
    """The sub-modules with only the cuts `keep` between them; `graph.nodes` follows."""
    free = free_nodes(graph)
    passed = [sum(cut <= submodule.index for cut in keep) for submodule in submodules]
    level = {n: passed[s.index] for s in submodules for n in s.nodes if n not in free}
    return arrange(graph, level)


def state_cuts(graph: Graph, submodules: Sequence[Submodule]) -> set[int]:
    """Cuts between two nodes that touch the same state, or its buffer after an update."""
    home = homes(submodules)
    span: dict[Value, list[int]] = {}
    for node in graph.nodes:
        for value in (*node.operands, *node.outputs):
            if is_buffer(value) and node in home:
                span.setdefault(_state_of(value), []).append(home[node])
    return {cut for places in span.values() for cut in range(min(places) + 1, max(places) + 1)}


def _state_of(value: Value) -> Value:
    """The state behind a buffer, through all of its updates."""
    while (
        not isinstance(value, State) and value.producer is not None and value.producer.inputs[0] is not None
    ):
        value = value.producer.inputs[0]
    return value


def activation_counts(graph: Graph, submodules: Sequence[Submodule]) -> list[int]:
    """For every cut how many activations cross it (`partc.ir.flow` says what counts); entry 0 is no cut."""
    free = free_nodes(graph)
    order = [node for submodule in submodules for node in submodule.nodes if node not in free]
    width = widths(graph, order, light_nodes(graph, free))
    home = homes(submodules)
    first = {home[node]: place for place, node in reversed(list(enumerate(order)))}
    return [width[first[submodule.index]] if submodule.index else 0 for submodule in submodules]


def _weights(info: ModelInfo, graph: Graph, submodules: Sequence[Submodule]) -> list[float]:
    """The share of each sub-module in bytes or in computing, the larger, as a part of the largest one's.

    Where the batch is yet to be chosen, of the smallest: the caches of a large one dwarf all that has none.
    """
    sized = of_batch(info, info.batches[0]) if info.batches else info
    profiles = profile_submodules(sized, graph, submodules)
    held = [p.weight_bytes + p.state_bytes + sum(p.shared.values()) for p in profiles]
    work = [p.phases["prefill"].flops for p in profiles]
    return [max(h / max(1, *held), w / max(1, *work)) for h, w in zip(held, work, strict=True)]
