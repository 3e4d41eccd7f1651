"""`split-graph`: applies the plan. Every device gets the graphs of its pieces, and a program per phase.

The order of things, for stages of one device and of several alike:

| step | room |
| --- | --- |
| the stages of the plan, and of the plans for losses, are cut into pieces | `partc.planner.model.pieces` |
| every piece is cut into sections, one graph a device | `passes.parts.sections` |
| the graphs are drawn | `passes.parts.drawing` |
| placements become the work of devices | `passes.parts.work` |
| work becomes programs | `partc.planner.programs` |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from partc.config.devices import load_devices
from partc.errors import PlanError
from partc.format.plan import PlanFile
from partc.format.program import Program, Run
from partc.ir.edit import Names
from partc.ir.equality import same_parts
from partc.ir.graph import Graph, Module, Part, Value
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.planner.model.pieces import Piece, layouts_of, pieces_of
from partc.planner.programs.request import Programs
from passes.parts.drawing import Works, draw
from passes.parts.sections import Model
from passes.parts.work import by_tiles, graphs_of, phases_in, programs_of, values_of
from passes.shards.pricing import held_blocks


@dataclass(frozen=True)
class SplitGraph(Pass):
    """Give every device in use its part; the whole graph stays in the module, to be compared with."""

    name: ClassVar[str] = "split-graph"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "split"

    devices: str = Default("")
    """Path of devices.yaml, which says what each part is lowered to; without it every part is for `null`."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.parts`, in the order in which a step first comes to each device."""
        before, module.parts = module.parts, split(module)
        if self.devices:
            devices = load_devices(self.devices).devices
            for part in module.parts:
                part.target = devices[part.device].target
        return before is None or not same_parts(before, module.parts)


def split(module: Module) -> list[Part]:
    """The parts that the plan of `module` describes, the source's first; O(V + E) per piece.

    The graph is cut at the borders of the plan, of those for the loss of a device, and where work can be moved, so that
    a piece is the same wherever it runs. A device may have several; one program runs those of the plan, others run what
    they name after a loss. Values, nodes and leaves are clones that keep their names, so that a target may rewrite one
    graph and leave the others and the whole graph alone; the contents of constants are not copied. What nobody reads is
    left out; `canonicalize` comes before, so that the planner counted no message of it.

    Raises:
        PlanError: there is no plan, it is for another graph, or its phases share caches in different ways.
    """
    plan, phases, graph = _plan_of(module), phases_in(module.info), module.graph
    planned, after = layouts_of(plan, phases)
    layouts, submodules = [planned, *after.values()], module.submodules or []
    pieces = pieces_of(layouts)
    blocks = held_blocks(graph, submodules) if any(piece.count > 1 for piece in pieces) else {}
    model = Model(graph, submodules, blocks)
    works = {piece: model.work(piece, by_tiles(piece, layouts)) for piece in pieces}
    token = Value(Names(graph).fresh("token"), "i64", ("batch",)) if module.info.has_states else None
    results = graph.outputs[:1] if token else graph.outputs
    draw(model, works, results)
    values = values_of(graph, works, results, token)
    programs, *others = [programs_of(layout, works, values, phases) for layout in layouts]
    without = dict(zip(after, others, strict=True))
    every = [programs, *others]
    return [
        Part(
            device,
            _graphs_on(device, works, every, _copied(plan, works, device)),
            _of_device(programs, device),
            without={
                lost: _of_device(found, device) for lost, found in without.items() if _runs(found, device)
            },
        )
        for device in dict.fromkeys(name for found in every for some in found.values() for name in some)
    ]


def _plan_of(module: Module) -> PlanFile:
    """The plan to apply.

    Raises:
        PlanError: there is none, or it is for another graph.
    """
    if module.plan is None or module.submodules is None:
        raise PlanError("there is no plan to apply", where="split-graph", hint="run partition-graph before")
    stages, count = module.plan.stages, len(module.submodules)
    placed = stages[-1].last + 1 if stages else 0
    if placed != count:
        raise PlanError(
            f"the plan places {placed} sub-modules, the graph has {count}",
            where="split-graph",
            hint="plan again: run partition-graph on this graph",
        )
    return module.plan


def _graphs_on(
    device: str, works: Works, placements: Sequence[Programs], copied: Collection[Piece]
) -> list[Graph]:
    """The graphs that a device runs in any placement, and those of the pieces `copied`, in the order of a step."""
    items = [item for found in placements for some in found.values() for item in some.get(device, ())]
    run = {item.submodule for item in items if isinstance(item, Run)}
    return [
        graph
        for piece, work in works.items()
        for graph in graphs_of(work)
        if graph.name in run or piece in copied
    ]


def _copied(plan: PlanFile, pieces: Iterable[Piece], device: str) -> set[Piece]:
    """The pieces that lie on a device so that work can be moved to it."""
    copies = plan.overlap.copies.get(device, ()) if plan.overlap else ()
    return {piece for piece in pieces if {*piece.indices} <= {*copies}}


def _of_device(programs: Programs, device: str) -> dict[str, Program]:
    return {phase: found.get(device, ()) for phase, found in programs.items()}


def _runs(programs: Programs, device: str) -> bool:
    return any(device in found for found in programs.values())
