"""The work of placements: what the devices of a phase do, unit by unit, with the graphs of pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partc.errors import PlanError
from partc.format.plan import SharedStage
from partc.format.program import Run, Sample
from partc.ir.graph import Graph, ModelInfo, Value
from partc.ir.once import is_of_request
from partc.planner.groups.units import units_of
from partc.planner.model.pieces import Layout, Piece, Placed
from partc.planner.programs.request import Programs, request_programs
from partc.planner.programs.work import Call, Calls, Compute, Item, Sum, UnitWork, Values
from passes.parts.drawing import Works
from passes.parts.sections import Parts, Section, Work, sections_in
from passes.shards.by_rows import is_by_rows


def phases_in(info: ModelInfo) -> tuple[str, ...]:
    """The phases that a model has programs for."""
    return ("prefill", "decode") if info.has_states else ("prefill",)


def values_of(graph: Graph, works: Works, results: Sequence[Value], token: Value | None) -> Values:
    """The values of a request.

    Args:
        graph: the whole model.
        works: drawn.
        results: what the client gets, or the logits.
        token: what is drawn from the logits.
    """
    names = tuple(value.name for value in results)
    return Values(
        given={value.name: not is_of_request(value) for value in graph.inputs if not value.is_step},
        on_devices=frozenset(value.name for value in graph.inputs if value.is_step),
        results=(token.name,) if token else names,
        sample=Sample(names[0], token.name) if token else None,
        order=[value.name for value in graph.values()],
        shapes={value.name: value.shape or () for value in _named(works)},
    )


def _named(works: Works) -> Iterator[Value]:
    """All values that graphs read and make, and their sums."""
    for work in works.values():
        yield from (item.total for item in work if isinstance(item, Parts))
        for graph in graphs_of(work):
            yield from (*graph.inputs, *graph.outputs)


def graphs_of(work: Work) -> Iterator[Graph]:
    """The graphs of all devices of a piece, in the order of a step."""
    for section in sections_in(work):
        for graphs in section.graphs:
            yield from graphs.every


def programs_of(layout: Layout, works: Works, values: Values, phases: Sequence[str]) -> Programs:
    """The programs of a placement.

    Args:
        layout: its stages and pieces.
        works: drawn.
        values: of the model.
        phases: those that the model has.

    Raises:
        PlanError: caches would lie on other devices, or in other shares, in one phase than in another.
    """
    _check_states(layout, works)
    return request_programs({phase: _units(layout, phase, works) for phase in phases}, values)


def _check_states(layout: Layout, works: Works) -> None:
    """States must lie where all phases look for them."""
    seen: dict[int, Placed] = {}
    for placed in dict.fromkeys(placed for some in layout.placed.values() for placed in some):
        has_states = any(graph.states() for graph in graphs_of(works[placed.piece]))
        if has_states and seen.setdefault(placed.piece.first, placed) != placed:
            before, now = (", ".join(each.devices) for each in (seen[placed.piece.first], placed))
            raise PlanError(
                f"the caches of sub-module {placed.piece.first} lie on {before} in one phase, on {now} in another, "
                "or in other shares: they would have to be laid out again, which nothing does yet",
                hint="let all phases have the same shares of attention",
            )


def _units(layout: Layout, phase: str, works: Works) -> list[UnitWork]:
    """The units of a phase, with the calls of each."""
    stage = {j: stage for stage in layout.stages[phase] for j in stage.indices}
    return [
        UnitWork(
            unit.devices,
            tuple(
                made
                for placed in layout.placed[phase]
                if unit.first <= placed.piece.first <= unit.last
                for item in works[placed.piece]
                for made in _items(item, stage[item.submodule], placed, is_first=phase == "prefill")
            ),
        )
        for unit in units_of(layout.stages[phase])
    ]


def _items(item: Section | Parts, stage: SharedStage, placed: Placed, *, is_first: bool) -> Iterator[Item]:
    """The items of a phase, on all devices that hold a piece or on one; those of the first step alone come first."""
    section = item if isinstance(item, Section) else item.leave
    graphs = section.graphs if section else []
    once = _calls([each.once for each in graphs], stage, placed) if is_first else ()
    steps = _calls([each.steps for each in graphs], stage, placed)
    if isinstance(item, Section):
        by_rows = stage.share == "sequence"
        if any(once):
            yield Compute("alone", once)
        if any(steps):
            yield Compute(item.kind, steps, item.kind == "enter" and not by_rows, by_rows)
    elif is_first or not item.is_once:
        if any(once) and not item.is_once:
            yield Compute("alone", once)
        names = tuple(value.name if value else None for value in item.parts)
        yield Sum(item.total.name, names, stage.exchange, once if item.is_once else steps)


def _calls(graphs: Sequence[Graph | None], stage: SharedStage, placed: Placed) -> Calls:
    """By rank, of the devices that compute in this phase."""
    every = dict(zip(placed.devices, map(_call, graphs), strict=False))
    return tuple(every[device] for device in stage.devices if device in every)


def _call(graph: Graph | None) -> Call | None:
    if graph is None:
        return None
    inputs, outputs = (tuple(value.name for value in values) for values in (graph.inputs, graph.outputs))
    return Call(Run(graph.name, inputs, outputs), is_by_rows(graph), bool(graph.states()))


def by_tiles(piece: Piece, layouts: Sequence[Layout]) -> set[int]:
    """The sub-modules of a piece whose rows are divided in some phase."""
    stages = [
        stage
        for layout in layouts
        for phase, some in layout.placed.items()
        if any(placed.piece == piece for placed in some)
        for stage in layout.stages[phase]
        if _divides_rows(stage)
    ]
    return {j for stage in stages for j in stage.indices if j in piece.indices}


def _divides_rows(stage: SharedStage) -> bool:
    return stage.exchange == "tiles" or stage.share == "sequence"
