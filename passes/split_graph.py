"""`split-graph`: applies the plan. Every device gets a graph per piece and a program per phase."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

from partc.config.devices import load_devices
from partc.errors import PlanError
from partc.format.placement import Stage, Stages
from partc.format.plan import PlanFile, losses_of
from partc.format.program import ONCE, Program, Run, Sample
from partc.ir.edit import Names
from partc.ir.equality import same_parts
from partc.ir.flow import needed
from partc.ir.graph import Graph, Input, Module, Node, Part, Value
from partc.ir.homes import homes, maker_of
from partc.ir.once import is_of_request, once_nodes
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.planner.model.programs import Calls, Whole, placement_programs
from partc.planner.model.stages import (
    SOURCE,
    Ends,
    part_name,
    pieces_in,
    pieces_of,
    places_of,
    route,
)
from passes.shards.parts import shared_parts


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


@dataclass(frozen=True)
class Flow:
    """The values of a step: where stages take them from and give them to."""

    messages: dict[Ends, list[Value]]
    """(sending stage, receiving stage) → values of the one message; to `SOURCE`: the way back."""
    keeps: dict[int, list[Value]]
    """Stage → values that later stages of the same device read."""
    results: dict[int, list[Value]]
    """Stage → outputs of the whole graph that it has."""

    def received(self, place: int) -> list[Value]:
        """The values that a stage is sent, in the order of the senders."""
        return [value for ends in sorted(self.messages) if ends[1] == place for value in self.messages[ends]]

    def given(self, place: int) -> list[Value]:
        """The values that leave a stage: those that it sends, nearest receiver first, keeps, and has as results."""
        sent = [value for ends in sorted(self.messages) if ends[0] == place for value in self.messages[ends]]
        return list(dict.fromkeys([*sent, *self.keeps.get(place, ()), *self.results.get(place, ())]))


def split(module: Module) -> list[Part]:
    """The parts that the plan of `module` describes, the source's first; O(V + E) per piece.

    The graph is cut at the borders of the plan, of those for the loss of a device, and where work can be moved, so that
    a piece is the same wherever it runs. A device may have several; one program runs those of the plan, others run what
    they name after a loss. Values, nodes and leaves are clones that keep their names, so that a target may rewrite one
    graph and leave the others and the whole graph alone; the contents of constants are not copied.

    Where stages have several devices, `passes.shards.parts` says what the parts are.

    Raises:
        PlanError: there is no plan, or it is for another graph.
    """
    stages, token = planned_stages(module), _token(module)
    if module.plan and module.plan.answer.phases:
        return shared_parts(module)
    assert module.plan is not None
    after = {loss.device: loss.stages for loss in losses_of(module.plan) if loss.stages}
    pieces = pieces_of(module.plan)
    flow = flow_of(module, pieces, token)
    nodes = [_nodes(module, number, piece) for number, piece in enumerate(pieces)]
    once = once_nodes(module.graph)
    graphs = [_piece_graphs(module.graph, nodes[number], once, flow, number) for number in range(len(pieces))]
    programs = _programs(module, stages, pieces, graphs, token)
    without = {lost: _programs(module, found, pieces, graphs, token) for lost, found in after.items()}
    return [
        Part(
            device,
            _graphs_on(device, graphs, [programs, *without.values()], _copied(module.plan, pieces, device)),
            programs.get(device, dict.fromkeys(_phases(module), ())),
            without={lost: found[device] for lost, found in without.items() if device in found},
        )
        for device in dict.fromkeys(name for found in (programs, *without.values()) for name in found)
    ]


def _phases(module: Module) -> tuple[str, ...]:
    return ("prefill", "decode") if module.info.has_states else ("prefill",)


@dataclass(frozen=True)
class _Piece:
    """The graphs of one piece, as far as it has nodes for them."""

    once: Graph | None
    """Run in the first step of a request alone."""
    steps: Graph | None
    """Run in all steps."""

    @property
    def graphs(self) -> list[Graph]:
        return [graph for graph in (self.once, self.steps) if graph is not None]


def _programs(
    module: Module, stages: Stages, pieces: Stages, graphs: Sequence[_Piece], token: Value | None
) -> dict[str, dict[str, Program]]:
    """Device → phase → its program under one placement of the pieces."""
    numbers = [pieces_in(stage, pieces) for stage in stages]
    placed = tuple(
        Stage((found[0], found[-1]), stage.devices, stage.share)
        for found, stage in zip(numbers, stages, strict=True)
    )
    calls = [Calls(_call(piece.once), _call(piece.steps)) for piece in graphs]
    return placement_programs(placed, calls, _whole(module, token), _phases(module))


def _call(graph: Graph | None) -> Run | None:
    return None if graph is None else Run(graph.name, _names(graph.inputs), _names(graph.outputs))


def _whole(module: Module, token: Value | None) -> Whole:
    """The inputs and results of a request of the graph."""
    inputs, outputs = module.graph.inputs, module.graph.outputs
    return Whole(
        given={value.name: not is_of_request(value) for value in inputs if not value.is_step},
        on_devices=frozenset(value.name for value in inputs if value.is_step),
        results=_names([token] if token else outputs),
        sample=Sample(outputs[0].name, token.name) if token else None,
        order=[value.name for value in module.graph.values()],
    )


def _graphs_on(
    device: str,
    pieces: Sequence[_Piece],
    placements: Iterable[Mapping[str, Mapping[str, Program]]],
    copied: Collection[int],
) -> list[Graph]:
    """The graphs that a device runs under any placement, and those of the pieces `copied`, in the order of a step."""
    items = [item for found in placements for program in found.get(device, {}).values() for item in program]
    run = {item.submodule for item in items if isinstance(item, Run)}
    return [
        graph
        for number, piece in enumerate(pieces)
        for graph in piece.graphs
        if graph.name in run or number in copied
    ]


def _piece_graphs(whole: Graph, nodes: Sequence[Node], once: Set[Node], flow: Flow, number: int) -> _Piece:
    """The graphs of a piece: what is computed once a request, and the rest.

    Nodes that depend on weights alone go to both where both need them.
    """
    first = [node for node in nodes if node in once]
    if not first:
        return _Piece(None, part_graph(whole, nodes, flow, number))
    others = {node for node in nodes if node not in once}
    plain = needed(first, others)
    rest = others - plain
    rest |= needed(rest, plain)
    steps = [node for node in nodes if node in rest]
    read = {value for node in steps for value in node.operands}
    own = {*first, *plain}
    wanted = [value for node in nodes if node in own for value in node.outputs if value in read]
    before = part_graph(whole, [node for node in nodes if node in own], flow, number, wanted)
    before.name += ONCE
    return _Piece(before, part_graph(whole, steps, flow, number) if steps else None)


def _copied(plan: PlanFile, pieces: Stages, device: str) -> list[int]:
    """The pieces that lie on a device so that work can be moved to it."""
    copies = plan.overlap.copies.get(device, ()) if plan.overlap else ()
    return [number for number, piece in enumerate(pieces) if {*piece.indices} <= {*copies}]


def planned_stages(module: Module) -> Stages:
    """The stages of the plan, in order.

    Raises:
        PlanError: there is no plan, or it is for another graph.
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
    return stages


def _nodes(module: Module, place: int, piece: Stage) -> list[Node]:
    """The nodes of one piece: shared ones that it needs, then its own, in the order of the graph."""
    submodules = module.submodules or []
    own = [node for index in piece.indices for node in submodules[index].nodes]
    home = homes(submodules)
    shared = {node for node in module.graph.nodes if node not in home}
    wanted = needed(own, shared)
    if place == SOURCE:
        # Outputs that every device could make are made by the source.
        ends = {v.producer for v in module.graph.outputs if v.producer in shared}
        wanted |= {node for node in ends if node} | needed([node for node in ends if node], shared)
    return [*(node for node in module.graph.nodes if node in wanted), *own]


def flow_of(module: Module, stages: Stages, token: Value | None) -> Flow:
    """The values that stages send, keep and end with: SDM and RDM, once for each receiving device, and the way back.

    `token`: what is returned instead of the logits.
    """
    place, home = places_of(stages), homes(module.submodules or ())
    readers = module.graph.consumers()
    uses = [
        (value, made, home[node])
        for value in module.graph.values()
        if (made := maker_of(value, home)) is not None
        for node in readers.get(value, ())
        if node in home
    ]
    flow = Flow(route(stages, uses), {}, {})
    for value, made, reader in uses:
        sender, receiver = place[made], place[reader]
        if sender != receiver and stages[sender].device == stages[receiver].device:
            flow.keeps.setdefault(sender, []).append(value)
    for value in module.graph.outputs[:1] if token else module.graph.outputs:
        made = maker_of(value, home)
        sender = SOURCE if made is None else place[made]
        flow.results.setdefault(sender, []).append(value)
        if not _has(stages, flow, sender, token or value):
            flow.messages.setdefault((sender, SOURCE), []).append(token or value)
    return flow


def _has(stages: Stages, flow: Flow, sender: int, value: Value) -> bool:
    """Whether the source makes what the stage `sender` makes, or is sent `value` by it already."""
    source = stages[SOURCE].device
    return stages[sender].device == source or any(
        value in values and stages[ends[1]].device == source
        for ends, values in flow.messages.items()
        if ends[0] == sender
    )


def _token(module: Module) -> Value | None:
    """The value that the last device returns instead of the logits."""
    if not module.info.has_states:
        return None
    return Value(Names(module.graph).fresh("token"), "i64", ("batch",))


def part_graph(
    whole: Graph, nodes: Sequence[Node], flow: Flow, place: int, wanted: Sequence[Value] = ()
) -> Graph:
    """The graph of one piece, with the pieces of the plan as stages.

    Inputs are the request's, the step's, what earlier stages of the device left, in the order in which it
    is made, then what it receives. Outputs are what it gives (`Flow.given`), as far as it makes that, and what is
    `wanted` besides.
    """
    made = {value for node in nodes for value in node.outputs}
    used = {value for node in nodes for value in node.operands}
    received, results = flow.received(place), flow.results.get(place, ())
    own = [value for value in whole.inputs if value not in received]
    known = {*whole.inputs, *received}
    left = [value for value in whole.values() if value.producer is not None and value not in known]
    inputs = [value for value in [*own, *left, *received] if value in used and value not in made]
    clones: dict[Value, Value] = {value: Input(value.name, value.dtype, value.shape) for value in inputs}
    cloned = [_clone_node(node, clones) for node in nodes]
    given = [v for v in flow.given(place) if v in made or (v in results and _is_leaf(v))]
    given += [value for value in wanted if value not in given]
    outputs = [_clone(value, clones) for value in given]
    inputs_cloned = [v for v in clones.values() if isinstance(v, Input)]
    return Graph(part_name(place), inputs_cloned, outputs, cloned, whole.opset)


def _is_leaf(value: Value) -> bool:
    return value.producer is None and not isinstance(value, Input)


def _clone(value: Value, clones: dict[Value, Value]) -> Value:
    """The clone of a value; leaves are cloned when they are first met."""
    if value not in clones:
        clones[value] = copy(value)
    return clones[value]


def _clone_node(node: Node, clones: dict[Value, Value]) -> Node:
    inputs = [None if value is None else _clone(value, clones) for value in node.inputs]
    outputs = [_clone(value, clones) for value in node.outputs]
    return Node(node.op, inputs, outputs, dict(node.attributes), node.scope)


def _names(values: Sequence[Value]) -> tuple[str, ...]:
    return tuple(value.name for value in values)
