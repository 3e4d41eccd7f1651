"""The model as a strip: its sub-modules by device, what crosses each cut, and the arcs of residual values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from partc.config.units import format_bytes, format_seconds
from partc.planner.model.evaluate import ValueKey, value_key
from partc.planner.model.stages import places_of
from partc.report.figures import Figure, Json, Plan, pointer
from partc.report.lanes import percent

_HEIGHT = 60.0
"""The height of the field of the arcs, in its own units."""


@dataclass(frozen=True)
class Cell:
    """One sub-module."""

    title: str


@dataclass(frozen=True)
class Segment:
    """One stage: consecutive sub-modules on one device, or on several that share them."""

    members: tuple[tuple[str, str], ...]
    """Each device with its colour."""
    cells: tuple[Cell, ...]
    first: Figure
    last: Figure

    @property
    def device(self) -> str:
        """`a`, or `a + b`."""
        return " + ".join(name for name, _ in self.members)


@dataclass(frozen=True)
class Sent:
    """The values that go from one stage to another."""

    sender: str
    receiver: str
    sizes: tuple[tuple[str, Figure], ...]
    """(phase, bytes)."""
    values: str


@dataclass(frozen=True)
class Cut:
    """The place between two stages."""

    number: int
    left: str
    """In per cent of the strip."""
    after: int
    """The last sub-module before it."""
    sent: tuple[Sent, ...]
    """Values for the next stage; empty where it needs nothing of this one."""


@dataclass(frozen=True)
class Arc:
    """Values that skip at least one sub-module."""

    path: str
    """SVG path data, one unit a sub-module wide."""
    is_sent: bool
    """Whether it leaves its device."""
    title: str


@dataclass(frozen=True)
class Strip:
    """The model as it is cut."""

    segments: tuple[Segment, ...]
    cuts: tuple[Cut, ...]
    skips: tuple[Sent, ...]
    """Messages that go past the next stage."""
    arcs: tuple[Arc, ...]
    width: int
    """Number of sub-modules."""
    height: int


def make_strip(plan: Plan) -> Strip:
    """The strip of a plan."""
    count = len(plan.problem["submodules"])
    skips = tuple(
        sent
        for place, group in enumerate(plan.groups)
        for a in group
        for later in plan.groups[place + 2 :]
        for b in later
        if (sent := _sent(plan, a, b)) is not None
    )
    arcs = tuple(_arcs(plan, count))
    return Strip(tuple(_segments(plan)), tuple(_cuts(plan, count)), skips, arcs, count, round(_HEIGHT))


def _segments(plan: Plan) -> Iterator[Segment]:
    for group in plan.groups:
        at, stage = ("predicted", "phases", 0, "stages", group[0]), plan.stages[group[0]]
        devices = [plan.stages[index].device for index in group]
        yield Segment(
            members=tuple((device, f"d{plan.devices.index(device)}") for device in devices),
            cells=tuple(
                Cell("; ".join(_describe(plan, number, device) for device in devices))
                for number in range(stage.first, stage.last + 1)
            ),
            first=plan.figure("count", pointer(*at, "first")),
            last=plan.figure("count", pointer(*at, "last")),
        )


def _describe(plan: Plan, number: int, device: str) -> str:
    memory = plan.problem["submodules"][number].get("memory_bytes", 0)
    shares = ", ".join(
        f"{stage.shares[stage.devices.index(device)]} of {sum(stage.shares)} {stage.share} in {phase}"
        for phase, stages in plan.case.phases.items()
        for stage in stages
        if number in stage.indices and device in stage.devices and stage.shares
    )
    if shares:
        return f"sub-module {number} on {device}: {shares}"
    times = ", ".join(
        f"{name} {format_seconds(entry['time_s'][device])}"
        for name, entry in _times(plan, number)
        if device in entry["time_s"]
    )
    return f"sub-module {number} on {device}: {format_bytes(memory)}, {times}"


def _times(plan: Plan, number: int) -> Iterator[tuple[str, Json]]:
    phases = plan.problem.get("phases")
    if phases:
        yield from ((phase["name"], phase["submodules"][number]) for phase in phases)
    else:
        yield "step", plan.problem["submodules"][number]


def _cuts(plan: Plan, count: int) -> Iterator[Cut]:
    for place, (group, following) in enumerate(pairwise(plan.groups), 1):
        after = plan.stages[group[0]].last
        sent = (_sent(plan, a, b) for a in group for b in following)
        yield Cut(place, percent(after + 1, count), after, tuple(one for one in sent if one))


def _sent(plan: Plan, a: int, b: int) -> Sent | None:
    """The message from stage `a` to stage `b`, over all phases; None: there is none."""
    sender, receiver = plan.stages[a].device, plan.stages[b].device
    sizes: list[tuple[str, Figure]] = []
    values: dict[str, None] = {}
    for number, phase in enumerate(plan.phases):
        for place, message in enumerate(phase.messages):
            if (message.from_stage, message.to_stage) == (a, b):
                at = pointer("predicted", "phases", number, "messages", place, "bytes")
                sizes.append((phase.phase, plan.figure("bytes", at)))
                values.update(dict.fromkeys(message.values))
    return Sent(sender, receiver, tuple(sizes), ", ".join(values)) if sizes else None


def _arcs(plan: Plan, count: int) -> Iterator[Arc]:
    """One arc for each pair of sub-modules, however many values go that way."""
    arcs: dict[tuple[int, int], dict[str, None]] = {}
    sent: set[tuple[int, int]] = set()
    for (a, name, _), readers in _readers(plan).items():
        skipping = [(a, b) for b in readers if b > a + 1]
        for pair in skipping:
            arcs.setdefault(pair, {})[name] = None
        sent.update(set(skipping) & _sent_pairs(plan, a, readers))
    for (a, b), values in sorted(arcs.items()):
        rise = _HEIGHT * (0.67 - 0.9 * ((b - a) / count) ** 0.5)
        path = (
            f"M{a + 0.5:g} {_HEIGHT:g}C{a + 0.5:g} {rise:.1f} {b + 0.5:g} {rise:.1f} {b + 0.5:g} {_HEIGHT:g}"
        )
        yield Arc(path, (a, b) in sent, f"from sub-module {a} to {b}: {', '.join(values)}")


def _readers(plan: Plan) -> Mapping[ValueKey, list[int]]:
    """Value → the sub-modules that read it, in order."""
    found: dict[ValueKey, set[int]] = {}
    for phase in plan.case.problem.steps:
        for number, edge in enumerate(phase.edges):
            found.setdefault(value_key(edge, number), set()).add(edge.receiver)
    return {key: sorted(readers) for key, readers in found.items()}


def _sent_pairs(plan: Plan, maker: int, readers: Sequence[int]) -> set[tuple[int, int]]:
    """A value is sent to the first reader on each other device, which keeps it for its later ones."""
    stages, place = plan.case.stages, places_of(plan.case.stages)
    first: dict[str, int] = {}
    for reader in readers:
        for device in stages[place[reader]].devices:
            first.setdefault(device, reader)
    home = stages[place[maker]].devices
    return {(maker, reader) for device, reader in first.items() if device not in home}
