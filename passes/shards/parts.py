"""The parts of a plan whose stages have several devices: graphs, and programs that sum what the devices make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partc.errors import PlanError
from partc.format.program import Emit, Instruction, Program, Recv, Run, Sample, Send
from partc.ir.edit import Names
from partc.ir.graph import Graph, Module, Part, Value
from partc.ir.plan import Exchange, Plan, SharedStage
from partc.plan.shared.sums import sum_programs
from passes.shards.members import Layout, Shared, lay_out
from passes.shards.pricing import held_blocks

EXCHANGES: tuple[Exchange, ...] = ("ring", "star")
"""Ways of summing that programs can be written for."""


def shared_parts(module: Module) -> list[Part]:
    """The parts of all devices, the source's first.

    Raises:
        PlanError: the plan asks for tiles or for rows, which nothing executes yet, or its devices differ.
    """
    assert module.plan is not None
    submodules, graph = module.submodules or (), module.graph
    plan = module.plan.answer
    members, shared = _shared(module, plan)
    layout = lay_out(graph, submodules, shared, len(members))
    token = Value(Names(graph).fresh("token"), "i64", ("batch",)) if module.info.has_states else None
    sent = {value for member in layout.members[1:] for value in member.foreign}
    graphs = {
        name: member.graphs(graph.outputs if not member.rank else (), sent if not member.rank else ())
        for name, member in zip(members, layout.members, strict=True)
    }
    programs = {
        phase: _programs(module, layout, members, graphs, _exchanges(stages), token)
        for phase, stages in plan.phases.items()
    }
    return [
        Part(
            name,
            [graph for graph in graphs[name] if graph],
            {phase: found[name] for phase, found in programs.items()},
        )
        for name in members
    ]


def _shared(module: Module, plan: Plan) -> tuple[tuple[str, ...], list[Shared | None]]:
    """The devices of the group, and how each sub-module is shared."""
    submodules = module.submodules or ()
    blocks = held_blocks(module.graph, submodules)
    several = [stage for stages in plan.phases.values() for stage in stages if len(stage.devices) > 1]
    for stage in several:
        if stage.share == "sequence" or stage.exchange not in EXCHANGES:
            what = "rows" if stage.share == "sequence" else stage.exchange
            hint = "--strategy megatron can be compiled"
            raise PlanError(f"the plan divides values by {what}, which nothing executes yet", hint=hint)
    shares = [{j: stage for stage in stages for j in stage.indices} for stages in plan.phases.values()]
    found: list[Shared | None] = []
    for j in range(len(submodules)):
        held = {(stages[j].devices, stages[j].shares) for stages in shares}
        (devices, units), *others = held
        if others or devices not in ((several[0].devices), (several[0].devices[0],)):
            raise PlanError(
                f"sub-module {j} has other devices, or other shares, than others or in other phases"
            )
        found.append(Shared(blocks[j], units) if len(devices) > 1 else None)
    return several[0].devices, found


def _exchanges(stages: Sequence[SharedStage]) -> dict[int, Exchange]:
    return {j: stage.exchange for stage in stages for j in stage.indices}


def _programs(
    module: Module,
    layout: Layout,
    members: Sequence[str],
    graphs: Mapping[str, Sequence[Graph | None]],
    exchanges: Mapping[int, Exchange],
    token: Value | None,
) -> dict[str, Program]:
    """Device → its program in one phase: spans, and between them sums, or what the source sends."""
    programs: dict[str, list[Instruction]] = {name: [] for name in members}
    for number in range(len(layout.sums) + 1):
        if number and layout.sums[number - 1] is None:
            _send(layout, members, number, programs)
        for name in members:
            if graph := graphs[name][number]:
                programs[name].append(Run(graph.name, _names(graph.inputs), _names(graph.outputs)))
        if number < len(layout.sums) and (summed := layout.sums[number]):
            j, how = summed
            value = how.block.end.outputs[0].name
            for name, items in sum_programs(value, members, how.shares, exchanges[j]).items():
                programs[name] += items
    last = [Sample(module.graph.outputs[0].name, token.name)] if token else []
    programs[members[0]] += [*last, Emit(_names([token] if token else module.graph.outputs))]
    return {name: tuple(items) for name, items in programs.items()}


def _send(
    layout: Layout, members: Sequence[str], number: int, programs: Mapping[str, list[Instruction]]
) -> None:
    """What other devices need of the source from this span on, until it sends again."""
    until = next(
        (n + 1 for n in range(number, len(layout.sums)) if layout.sums[n] is None), len(layout.sums) + 1
    )
    for name, member in zip(members[1:], layout.members[1:], strict=True):
        values = tuple(value.name for value, first in member.foreign.items() if number <= first < until)
        if values:
            programs[members[0]].append(Send(values, name))
            programs[name].append(Recv(values, members[0]))


def _names(values: Sequence[Value]) -> tuple[str, ...]:
    return tuple(value.name for value in values)
