"""The parts of a plan whose stages have several devices: graphs, and programs that cut, sum and join what they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from partc.errors import PlanError
from partc.format.plan import SharedStage, SharedStages, losses_of
from partc.format.program import Program, Run
from partc.ir.edit import Names
from partc.ir.graph import Graph, Module, Part, Value
from partc.ir.once import is_of_request
from partc.planner.groups.kept import with_kept
from partc.planner.groups.programs import group_programs
from partc.planner.groups.units import units_of
from partc.planner.groups.work import Call, Compute, Item, Sum, UnitWork, Values
from passes.shards.by_rows import is_by_rows
from passes.shards.pieces import Drawing, Holding, Parts, Piece, Work
from passes.shards.pricing import held_blocks

_Held = tuple[tuple[str, ...], str, tuple[int, ...]]
"""Devices, how they share a sub-module, and the units of each."""


Phases = Mapping[str, SharedStages]
Works = Mapping[Holding, Work]
Programs = Mapping[str, Mapping[str, Program]]
"""Phase → device → its program."""


def shared_parts(module: Module) -> list[Part]:
    """The parts of all devices, the source's first: of the plan, and of those for the loss of a device.

    Raises:
        PlanError: caches would lie on other devices, or in other shares, in one phase than in another.
    """
    assert module.plan is not None
    submodules, graph = module.submodules or (), module.graph
    drawing = Drawing(graph, submodules, held_blocks(graph, submodules))
    works, programs = _placed(module, drawing, module.plan.answer.phases)
    after: dict[str, Programs] = {}
    every = [works]
    for loss in losses_of(module.plan):
        same = [other.device for other in losses_of(module.plan) if other.phases == loss.phases]
        if same[0] in after:
            after[loss.device] = after[same[0]]
        elif loss.phases:
            works, after[loss.device] = _placed(module, drawing, loss.phases)
            every.append(works)
    return _parts(every, programs, after)


def _placed(module: Module, drawing: Drawing, phases: Phases) -> tuple[Works, Programs]:
    """The graphs and the programs of one placement."""
    graph, held = module.graph, _holdings(phases)
    _check_states(drawing, held)
    works = {holding: drawing.work(holding, _by_tiles(phases, held, holding)) for holding in _all(held)}
    token = Value(Names(graph).fresh("token"), "i64", ("batch",)) if module.info.has_states else None
    results = tuple(value.name for value in (graph.outputs[:1] if token else graph.outputs))
    drawing.draw(works, results)
    values = Values(
        shapes={value.name: value.shape or () for value in _values(works)},
        given=frozenset(value.name for value in graph.inputs if value.is_step),
        inputs=tuple(value.name for value in graph.inputs if not value.is_step),
        results=results,
        token=token.name if token else None,
    )
    programs = {
        phase: group_programs(_units(stages, held[phase], works), values) for phase, stages in phases.items()
    }
    brought = [value.name for value in graph.inputs if is_of_request(value)]
    if "decode" in programs and brought:
        known = [value.name for value in graph.inputs if not is_of_request(value)]
        stateful = [
            graph.name
            for work in works.values()
            for item in work
            for graph in _graphs(item)
            if graph and graph.states()
        ]
        first, later = with_kept(programs["prefill"], programs["decode"], brought, known, stateful)
        programs |= {"prefill": first, "decode": later}
    return works, programs


def _holdings(phases: Phases) -> dict[str, list[Holding]]:
    """The holdings of each phase, in order; where two phases agree, they have the same ones."""
    by_index = [
        [(stage.devices, stage.share, _units_of(stage)) for stage in stages for _ in stage.indices]
        for stages in phases.values()
    ]
    columns = [_common(column) for column in zip(*by_index, strict=True)]
    by_index = [list(row) for row in zip(*columns, strict=True)]
    alike = [[column.index(one) for one in column] for column in columns]
    borders = {unit.first for stages in phases.values() for unit in units_of(stages)}
    borders |= {j for j in range(1, len(alike)) if alike[j] != alike[j - 1]}
    ends = [*sorted(borders), len(alike)]
    return {
        phase: [
            Holding(first, row[first][0], tuple((share, units) for _, share, units in row[first:end]))
            for first, end in pairwise(ends)
        ]
        for phase, row in zip(phases, by_index, strict=True)
    }


def _common(column: Sequence[_Held]) -> list[_Held]:
    """A sub-module's holdings by phase, where one of the devices that have all of it may compute it alone."""
    whole = next((held for held in column if held[1] == "sequence"), None)
    return [whole if whole and held[1] == "one" and held[0][0] in whole[0] else held for held in column]


def _units_of(stage: SharedStage) -> tuple[int, ...]:
    """The units of each device; none where rows are divided, which are others in each step."""
    return () if stage.share == "sequence" else stage.shares


def _all(held: Mapping[str, Sequence[Holding]]) -> list[Holding]:
    """The holdings of all phases in the order of a step."""
    found = dict.fromkeys(holding for some in held.values() for holding in some)
    return sorted(found, key=lambda holding: holding.first)


def _check_states(drawing: Drawing, held: Mapping[str, Sequence[Holding]]) -> None:
    """States must lie where all phases look for them."""
    seen: dict[int, Holding] = {}
    for holding in _all(held):
        nodes = [
            node for part in drawing.submodules[holding.first :][: len(holding.shares)] for node in part.nodes
        ]
        if Graph("", [], [], nodes).states() and seen.setdefault(holding.first, holding) != holding:
            before, now = (", ".join(each.devices) for each in (seen[holding.first], holding))
            raise PlanError(
                f"the caches of sub-module {holding.first} lie on {before} in one phase, on {now} in another, or in "
                "other shares: they would have to be laid out again, which nothing does yet",
                hint="let all phases have the same shares of attention",
            )


def _stage_of(stages: SharedStages) -> dict[int, SharedStage]:
    return {j: stage for stage in stages for j in stage.indices}


def _by_tiles(phases: Phases, held: Mapping[str, Sequence[Holding]], holding: Holding) -> set[int]:
    """The sub-modules of a holding whose rows are divided in some phase."""
    indices = range(holding.first, holding.first + len(holding.shares))
    stages = [_stage_of(found) for phase, found in phases.items() if holding in held[phase]]
    return {j for j in indices if any(_divides_rows(found[j]) for found in stages)}


def _divides_rows(stage: SharedStage) -> bool:
    return stage.exchange == "tiles" or stage.share == "sequence"


def _values(works: Works) -> list[Value]:
    """All values that graphs read and make, and their sums."""
    items = [item for work in works.values() for item in work]
    graphs = [graph for item in items for graph in _graphs(item) if graph]
    totals = [item.total for item in items if isinstance(item, Parts)]
    return [*totals, *(value for graph in graphs for value in (*graph.inputs, *graph.outputs))]


def _graphs(item: Piece | Parts) -> list[Graph | None]:
    piece = item if isinstance(item, Piece) else item.leave
    return piece.graphs if piece else []


def _units(stages: SharedStages, held: Sequence[Holding], works: Works) -> list[UnitWork]:
    """The units of a phase, with the calls of each."""
    stage = _stage_of(stages)
    return [
        UnitWork(
            unit.devices,
            tuple(
                _item(item, stage[item.submodule], holding)
                for holding in held
                if unit.first <= holding.first <= unit.last
                for item in works[holding]
            ),
        )
        for unit in units_of(stages)
    ]


def _item(item: Piece | Parts, stage: SharedStage, holding: Holding) -> Item:
    """A piece of work, as a phase does it: on all devices that hold it, or on one."""
    every = dict(zip(holding.devices, map(_call, _graphs(item)), strict=False))
    calls = tuple(every[device] for device in stage.devices if device in every)
    if isinstance(item, Parts):
        names = tuple(value.name if value else None for value in item.parts)
        return Sum(item.total.name, names, stage.exchange, calls)
    by_rows = stage.share == "sequence"
    return Compute(item.kind, calls, item.kind == "enter" and not by_rows, by_rows)


def _call(graph: Graph | None) -> Call | None:
    if graph is None:
        return None
    inputs, outputs = (tuple(value.name for value in values) for values in (graph.inputs, graph.outputs))
    return Call(Run(graph.name, inputs, outputs), is_by_rows(graph), bool(graph.states()))


def _parts(every: Sequence[Works], programs: Programs, without: Mapping[str, Programs]) -> list[Part]:
    """The parts of devices: the graphs that they run in any placement and phase, in the order of a step."""
    graphs = [graph for works in every for work in works.values() for item in work for graph in _graphs(item)]
    devices = dict.fromkeys(
        device for placed in (programs, *without.values()) for found in placed.values() for device in found
    )
    parts = []
    for device in devices:
        own = _of_device(programs, device)
        others = {lost: _of_device(found, device) for lost, found in without.items() if _runs(found, device)}
        items = [item for some in (own, *others.values()) for program in some.values() for item in program]
        run = {item.submodule for item in items if isinstance(item, Run)}
        mine = [graph for graph in graphs if graph and graph.name in run]
        parts.append(Part(device, mine, own, without=others))
    return parts


def _of_device(programs: Programs, device: str) -> dict[str, Program]:
    return {phase: found.get(device, ()) for phase, found in programs.items()}


def _runs(programs: Programs, device: str) -> bool:
    return any(device in found for found in programs.values())
