"""`overlap-submodules`: copies of sub-modules beside each border, so that either neighbour can compute them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import networkx as nx
from msgspec import structs

from partc.config.devices import load_devices
from partc.errors import PlanError
from partc.format.placement import Stage, Stages
from partc.format.plan import Copy, Holding, Overlap
from partc.ir.graph import Module
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.planner.model.movable import with_borders
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import read_problem
from partc.planner.model.stages import held

MAX_LABELS = 1000
"""Partial choices that are kept at a time: more than an interval has sub-modules, so more than rings need in which no
device comes twice."""


@dataclass(frozen=True)
class OverlapSubmodules(Pass):
    """Find the copies of sub-modules beside each border that fill the memory which the plan leaves.

    They say what may be moved. Copies lie on disks, and graphs are cut further, where devices.yaml asks for it. A plan
    with stages of several devices has none.
    """

    name: ClassVar[str] = "overlap-submodules"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "mapped"

    devices: str = Default("")
    """Path of devices.yaml, for `overlap`; without it nothing is cut further."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `overlap` in `module.plan`.

        Raises:
            PlanError: there is no plan, or it does not say how much memory there is.
        """
        plan = module.plan
        if plan is None or plan.problem is None:
            what = "there is no plan" if plan is None else "the plan does not say what devices can hold"
            raise PlanError(what, where="overlap-submodules", hint="run partition-graph before")
        if plan.answer.phases:
            return False
        problem = read_problem(plan.problem, "plan: problem")
        if unknown := sorted({*held(plan.stages)} - {*problem.device_of}):
            message = f"the plan gives sub-modules to {unknown[0]!r:.60}, which is none of its devices"
            raise PlanError(message, where="plan: answer", hint="run partition-graph again")
        overlap = overlap_of(problem, plan.stages)
        if most := load_devices(self.devices).overlap if self.devices else 0:
            on_disk = plan.survival.copies if plan.survival else {}
            overlap = with_borders(problem, plan.stages, overlap, most, on_disk)
        module.plan = structs.replace(plan, overlap=overlap)
        return plan != module.plan


def overlap_of(problem: Problem, stages: Stages) -> Overlap:
    """`overlap` of plan.json for a plan that fits.

    `shared` lists every copy that memory has room for: sub-module, its device and the neighbour. Per device, the
    `movable` sub-modules are those of `shared` that are its own or that it could take over; its others are
    `unmovable`; `needed_bytes` are with all copies. `bytes` is what was maximised (`find_overlap`), and no
    choice has more than `bound_bytes`. Nothing lies on another disk for that until `with_borders` says so.
    """
    copies, bound = find_overlap(problem, stages)
    shared = sorted((j, side.owner.device, side.device) for side, taken in copies for j in taken)
    return Overlap(
        bytes=sum(_bytes(problem, j) for j, _, _ in shared),
        bound_bytes=bound,
        devices={
            name: _holding_of(problem, name, own, [j for j, *holders in shared if name in holders])
            for name, own in held(stages).items()
        },
        shared=tuple(Copy(j, (owner, neighbour)) for j, owner, neighbour in shared),
    )


def _holding_of(problem: Problem, name: str, own: Sequence[int], movable: Sequence[int]) -> Holding:
    device = problem.device_of[name]
    return Holding(
        movable=tuple(movable),
        unmovable=tuple(sorted({*own} - {*movable})),
        needed_bytes=device.overhead_bytes + problem.memory_of(sorted({*own, *movable})),
        available_bytes=device.memory_bytes,
    )


@dataclass(frozen=True)
class Side:
    """One end of a stage, seen from the neighbour that may hold copies of it."""

    owner: Stage
    device: str
    """The neighbour."""
    submodules: tuple[int, ...]
    """The sub-modules that may be copied, nearest to the border first; all but one of the stage's at most."""


Copies = list[tuple[Side, tuple[int, ...]]]
"""The sub-modules that are copied, for each side."""


def find_overlap(problem: Problem, stages: Stages) -> tuple[Copies, float]:
    """The copies with the most bytes, and a bound on the bytes of any.

    LinguaLinked 3.3.1, Eq. 6-7, with X^l and X^r as the copies to the left and right of a device's own. The
    paper writes `minimize`, and the optimum of that is no copy at all, while its text "seeks to maximize the
    memory utilization within the constraints of device memory"; so here it is maximised:

        sum over all copies of M_j, where M_j are the bytes of weights and states of sub-module j,

    shared ones included; of equal sums the one with more sub-modules. Subject to, per device, its overhead,
    its own sub-modules and its copies within its usable memory (peaks and shared weights as in the plan).
    What the paper leaves open: copies are contiguous from the border, so that every choice of the later load
    balancer is an assignment of intervals; a sub-module lies on two devices at most, and every interval keeps
    one that does not move, so that no device falls out of the ring (and the first sub-module stays on the
    source); a device that cannot run a sub-module gets no copy of it. Only neighbours in the step overlap.

    Dynamic programming over the sides, border by border: a label is the best choice so far for what it uses
    of the devices and intervals that later sides draw on too. Sides that have nothing in common are solved
    apart. In a ring where no device comes twice each of these chains has one open resource at a time, so
    there are at most as many labels as sub-modules in an interval: O(sub-modules x longest interval). Where
    devices come again they are open for longer, and the labels are cut at `MAX_LABELS`; only then may the
    bound be above the bytes.
    """
    sides = _sides(problem, stages)
    resources = {**_rooms(stages), **_memories(problem, stages)}
    graph = nx.Graph((place, key) for place, side in enumerate(sides) for key in _keys(side))
    copies: Copies = []
    bound: float = 0
    for component in nx.connected_components(graph):
        chain = [side for place, side in enumerate(sides) if place in component]
        best, most = _search(problem, chain, resources)
        copies += [(side, side.submodules[:count]) for side, count in zip(chain, best.counts, strict=True)]
        bound += most
    return copies, bound


def _sides(problem: Problem, stages: Stages) -> list[Side]:
    sides = []
    for left, right in pairwise(stages):
        sides.append(_side(problem, left, right.device, range(left.last, left.first, -1)))
        sides.append(_side(problem, right, left.device, range(right.first, right.last)))
    return sides


def _side(problem: Problem, owner: Stage, device: str, submodules: Iterable[int]) -> Side:
    reachable = []
    for j in submodules:
        if any(device not in phase.time_s[j] for phase in problem.steps):
            break
        reachable.append(j)
    return Side(owner, device, tuple(reachable))


def _bytes(problem: Problem, j: int) -> float:
    """M_j: weights and states, shared ones included."""
    submodule = problem.submodules[j]
    return submodule.memory_bytes + (submodule.shared.bytes if submodule.shared else 0)


class Use(NamedTuple):
    """The use of a resource: of a device's memory, or of a stage's sub-modules that may move."""

    amount: float
    peak: float = 0
    groups: frozenset[str] = frozenset()
    """Shared weights that are there and need no more memory."""


@dataclass(frozen=True)
class Resource:
    """Something that several sides draw on."""

    capacity: float
    start: Use

    def fits(self, use: Use) -> bool:
        """Whether there is that much."""
        return use.amount + use.peak <= self.capacity


Key = str | Stage
"""A device's memory by the device's name, a stage's movable sub-modules by the stage."""


def _rooms(stages: Stages) -> dict[Key, Resource]:
    """Every stage keeps one sub-module."""
    return {stage: Resource(stage.last - stage.first, Use(0)) for stage in stages}


def _memories(problem: Problem, stages: Stages) -> dict[Key, Resource]:
    """The memory of devices before any copy."""
    found: dict[Key, Resource] = {}
    for name, own in held(stages).items():
        device = problem.device_of[name]
        use = Use(device.overhead_bytes)
        for j in own:
            use = _holding(problem, use, j)
        found[name] = Resource(device.memory_bytes, use)
    return found


def _holding(problem: Problem, use: Use, j: int) -> Use:
    """Memory in use with one more sub-module."""
    submodule = problem.submodules[j]
    amount, groups = use.amount + submodule.memory_bytes, use.groups
    if submodule.shared and submodule.shared.name not in groups:
        amount, groups = amount + submodule.shared.bytes, groups | {submodule.shared.name}
    return Use(amount, max(use.peak, submodule.peak_bytes), groups)


def _keys(side: Side) -> tuple[Key, Key]:
    return side.device, side.owner


class Label(NamedTuple):
    """The best choice for the first sides of a chain among those of equal use."""

    gain: tuple[float, int]
    """Bytes, then number, of the copies."""
    counts: tuple[int, ...]
    """Copies per side."""
    uses: Mapping[Key, Use]
    """The use of resources that later sides draw on too; the same ones in the same order in labels of as many sides."""


def _search(
    problem: Problem, chain: Sequence[Side], resources: Mapping[Key, Resource]
) -> tuple[Label, float]:
    """The best choice for sides that draw on common resources, and a bound on the bytes of any choice."""
    last = {key: place for place, side in enumerate(chain) for key in _keys(side)}
    rest = sum(_bytes(problem, j) for side in chain for j in side.submodules)
    labels, dropped = [Label((0, 0), (), {})], 0.0
    for place, side in enumerate(chain):
        rest -= sum(_bytes(problem, j) for j in side.submodules)
        best: dict[tuple[Use, ...], Label] = {}
        for label in [found for known in labels for found in _extend(problem, known, side, resources)]:
            uses = {key: use for key, use in label.uses.items() if last[key] > place}
            key = tuple(uses.values())
            if key not in best or label.gain > best[key].gain:
                best[key] = label._replace(uses=uses)
        labels = sorted(best.values(), key=lambda label: label.gain, reverse=True)
        dropped = max([dropped, *(label.gain[0] + rest for label in labels[MAX_LABELS:])])
        del labels[MAX_LABELS:]
    found = labels[0].gain[0]
    return labels[0], found if dropped <= found else min(dropped, _ceiling(problem, chain, resources))


def _ceiling(problem: Problem, chain: Sequence[Side], resources: Mapping[Key, Resource]) -> float:
    """A bound on all choices: by what each stage can give, and by what each device can take."""
    owners = {side.owner for side in chain}
    sizes = [[_bytes(problem, j) for j in owner.indices] for owner in owners]
    given = sum(sum(size) - min(size) for size in sizes)
    taken = 0.0
    for name in {side.device for side in chain}:
        offered = [j for side in chain if side.device == name for j in side.submodules]
        start = resources[name].start
        shared = sum(part.shared.bytes for j in offered if (part := problem.submodules[j]).shared)
        room = resources[name].capacity - start.amount - start.peak + shared
        taken += min(room, sum(_bytes(problem, j) for j in offered))
    return min(given, taken)


def _extend(problem: Problem, label: Label, side: Side, resources: Mapping[Key, Resource]) -> Iterator[Label]:
    """`label` with none, one, two, … of the side's sub-modules copied, as long as they fit."""
    memory, room = (label.uses.get(key, resources[key].start) for key in _keys(side))
    (size, number), count = label.gain, 0
    while True:
        uses = {**label.uses, side.device: memory, side.owner: room}
        yield Label((size, number + count), (*label.counts, count), uses)
        if count == len(side.submodules):
            return
        j = side.submodules[count]
        memory, room = _holding(problem, memory, j), Use(room.amount + 1)
        if not resources[side.device].fits(memory) or not resources[side.owner].fits(room):
            return
        size, count = size + _bytes(problem, j), count + 1
