"""`profile-submodules`: what every sub-module holds, computes and moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import ClassVar, TypeGuard

from partc.errors import ModelError
from partc.format.dims import Dim, symbols
from partc.ir.costs import UNMOVED, node_cost, scratch_bytes
from partc.ir.effects import is_buffer
from partc.ir.flow import needed
from partc.ir.graph import (
    Constant,
    Graph,
    ModelInfo,
    Module,
    Node,
    PhaseCost,
    State,
    Submodule,
    SubmoduleProfile,
    Value,
    Weight,
    dims_of,
)
from partc.ir.homes import homes, maker_of
from partc.ir.once import once_nodes, once_values
from partc.ir.types import HALF
from partc.ir.weights import Join, Leaf, WeightExpr, leaves, print_expr
from partc.ir.weights import Step as Transform
from partc.ir.workload import Step, largest, workload
from partc.pipeline.contract import Context, Pass

Stored = Callable[[Weight], int]
"""Bytes of a weight where it lies."""


@dataclass(frozen=True)
class ProfileSubmodules(Pass):
    """Price every sub-module in every phase of the workload; the graph stays as it is."""

    name: ClassVar[str] = "profile-submodules"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "mapped"

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.profile`."""
        before = module.profile
        module.profile = profile_submodules(module.info, module.graph, module.submodules or ())
        return before != module.profile


def profile_submodules(
    info: ModelInfo, graph: Graph, submodules: Sequence[Submodule], stored: Stored | None = None
) -> list[SubmoduleProfile]:
    """One profile per sub-module; O(V + E) per phase.

    Times and traffic are those of `partc.ir.costs.workload`, one sequence; memory is that of the largest
    batch and sequence that the model allows, because a device must stand that too. What shared nodes cost
    is left out: it is cheap by definition, and paid once per device however many sub-modules are there.
    `stored`: bytes of a weight as targets store it, once that is known; as in the graph where it is not given.

    Raises:
        ModelError: a symbol of the graph has no largest value.
    """
    _check_symbols(info, graph)
    stored = cache(stored or _plain)
    home = homes(submodules)
    shared = {node for node in graph.nodes if node not in home}
    kept = _kept_values(graph, home)
    needs = [_leaves_of(submodule, shared) for submodule in submodules]
    users = Counter(key for need in needs for key in {_identity(v) for v in need if isinstance(v, Weight)})
    crossing = {step.name: crossing_bytes(graph, submodules, step) for step in workload(info)}
    once = once_nodes(graph)
    remembered = _remembered(submodules, once_values(graph), largest(info, "prefill"))
    profiles = []
    for submodule, need in zip(submodules, needs, strict=True):
        costs = {
            step.name: _phase_cost(info, _nodes_in(submodule, step, once), kept, step, stored)
            for step in workload(info)
        }
        phases = {
            name: replace(cost, crossing_bytes=crossing[name][submodule.index])
            for name, cost in costs.items()
        }
        sizes = _sizes(info, need, users, phases, stored)
        own = remembered[submodule.index] * info.max_requests
        profiles.append(replace(sizes, state_bytes=sizes.state_bytes + own))
    return profiles


def _nodes_in(submodule: Submodule, step: Step, once: Set[Node]) -> list[Node]:
    """The nodes that a step computes: behind the first one, not those that are computed once a request."""
    return [node for node in submodule.nodes if step.name != "decode" or node not in once]


def _remembered(submodules: Sequence[Submodule], once: Set[Value], step: Step) -> list[int]:
    """For every sub-module the bytes of what it reads in every step and only the first one makes."""
    makers = {value.producer for value in once}
    read = [
        {value for node in submodule.nodes if node not in makers for value in node.operands if value in once}
        for submodule in submodules
    ]
    return [sum(value.bytes(step.sizes) for value in values) for values in read]


def _plain(weight: Weight) -> int:
    return weight.bytes({})


def _check_symbols(info: ModelInfo, graph: Graph) -> None:
    known = {*info.dims, "batch", "sequence"}
    for dim in dict.fromkeys(dims_of(graph)):
        if unknown := symbols(dim) - known:
            raise ModelError(
                f"the size {_quoted(dim, unknown)} has no largest value: its cost is unknown",
                where=f"graph {graph.name}",
                hint=f'give it one in the model header: "dims": {{"{min(unknown)}": 128}}',
            )


def _quoted(dim: Dim, unknown: frozenset[str]) -> str:
    return f"{min(unknown)!r}" if dim in unknown else f"{min(unknown)!r} (in {dim!r})"


def _kept_values(graph: Graph, home: Mapping[Node, int]) -> set[Value]:
    """Values that must outlive the sub-module that makes them: others read them, or the user gets them."""
    read = ((value, value.producer, home[node]) for node in home for value in node.operands)
    crossing = {
        value for value, maker, place in read if maker is not None and home.get(maker, place) != place
    }
    return crossing | set(graph.outputs)


def _leaves_of(submodule: Submodule, shared: set[Node]) -> list[Value]:
    """Weights, constants and states that a sub-module needs, those of its shared nodes included."""
    nodes = [*submodule.nodes, *needed(submodule.nodes, shared)]
    operands = (value for node in nodes for value in node.operands)
    return list(dict.fromkeys(value for value in operands if isinstance(value, Weight | Constant | State)))


def _sizes(
    info: ModelInfo,
    need: Sequence[Value],
    users: Mapping[str, int],
    phases: Mapping[str, PhaseCost],
    stored: Stored,
) -> SubmoduleProfile:
    sizes = largest(info, "prefill").sizes
    distinct = {_identity(weight): stored(weight) for weight in need if isinstance(weight, Weight)}
    shared = {key: size for key, size in distinct.items() if users[key] > 1}
    half = {_identity(weight): weight.bytes(sizes) for weight in need if _is_half(weight)}
    constants = sum(value.bytes(sizes) for value in need if isinstance(value, Constant))
    states = sum(value.bytes(sizes) for value in need if isinstance(value, State))
    return SubmoduleProfile(
        weight_bytes=sum(distinct.values()) - sum(shared.values()) + constants,
        state_bytes=states * info.max_requests,
        phases=phases,
        shared=dict(sorted(shared.items())),
        half_bytes=sum(half.values()),
    )


def _is_half(value: Value) -> TypeGuard[Weight]:
    return isinstance(value, Weight) and value.dtype in HALF


def _identity(weight: Weight) -> str:
    """The key of a weight's memory: the tensors and the pieces cut out, not their layout."""
    assert weight.source is not None
    parts = list(leaves(weight.source))
    bare = _without_layout(weight.source)
    return parts[0].key if len(parts) == 1 and bare == parts[0] else print_expr(bare)


def _without_layout(expr: WeightExpr) -> WeightExpr:
    match expr:
        case Transform(op="transpose" | "reshape", source=source):
            return _without_layout(source)
        case Transform(source=source):
            return replace(expr, source=_without_layout(source))
        case Join(parts=parts):
            return replace(expr, parts=tuple(_without_layout(part) for part in parts))
        case Leaf():
            return expr


def _phase_cost(
    info: ModelInfo, nodes: Sequence[Node], kept: Set[Value], step: Step, stored: Stored
) -> PhaseCost:
    costs = [node_cost(node, step) for node in nodes]
    moved = sum(_moved(node, cost.moved_bytes, step, stored) for node, cost in zip(nodes, costs, strict=True))
    peak = peak_bytes(nodes, kept, largest(info, step.name))
    return PhaseCost(sum(c.flops for c in costs), moved, peak)


def _moved(node: Node, moved: int, step: Step, stored: Stored) -> int:
    """The bytes that a node moves, with the part of its weights that it reads in the size that they are stored in."""
    values = dict.fromkeys((*node.operands, *node.outputs))
    weights = [value for value in values if isinstance(value, Weight)]
    plain, real = sum(map(_plain, weights)), sum(map(stored, weights))
    if plain == real:
        return moved
    others = sum(value.bytes(step.sizes) for value in values if not isinstance(value, Weight))
    return others + (moved - others) * real // plain


def peak_bytes(nodes: Sequence[Node], kept: Set[Value], step: Step) -> int:
    """Largest sum of what is alive while `nodes` run: received values, results, scratch of attention.

    A value lives from its making (received ones: from the beginning) to its last reader; `kept` ones that
    are made here live to the end. States are no activations, and a view is its operand. O(V + E).
    """
    place = {node: i for i, node in enumerate(nodes)}
    dies: dict[Value, int] = {}
    for i, node in enumerate(nodes):
        dies.update((_root(value), i) for value in (*node.operands, *node.outputs))
    dies.update((_root(value), len(nodes) - 1) for node in nodes for value in node.outputs if value in kept)
    change = [0] * (len(nodes) + 1)
    for root, end in dies.items():
        if isinstance(root, Weight | Constant | State) or is_buffer(root):
            continue
        size = root.bytes(step.sizes)
        change[place.get(root.producer, 0) if root.producer else 0] += size
        change[end + 1] -= size
    running = peak = 0
    for node, delta in zip(nodes, change, strict=False):
        running += delta
        peak = max(peak, running + scratch_bytes(node, step))
    return peak


def _root(value: Value) -> Value:
    """The value whose bytes a view looks at."""
    while value.producer is not None and value.producer.op in UNMOVED:
        first = value.producer.inputs[0]
        if first is None or value.producer.op in ("Shape", "Size"):
            return value
        value = first
    return value


def crossing_bytes(graph: Graph, submodules: Sequence[Submodule], step: Step) -> list[int]:
    """For every sub-module the bytes that cross the cut before it, whoever reads them; O(V + E)."""
    home = homes(submodules)
    known = once_values(graph) if step.name == "decode" else ()
    change = [0] * (len(submodules) + 1)
    for value, readers in graph.consumers().items():
        if value in known:
            continue
        made = maker_of(value, home)
        last = max((home.get(node, -1) for node in readers), default=-1)
        if made is not None and last > made:
            change[made + 1] += value.bytes(step.sizes)
            change[last + 1] -= value.bytes(step.sizes)
    return list(accumulate(change[: len(submodules)]))
