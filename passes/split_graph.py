"""`split-graph`: applies the plan. Every device in use gets a graph per interval and a program per phase."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar

from partc.config.devices import load_devices
from partc.errors import InternalError, PlanError
from partc.format.program import Emit, Instruction, Recv, Run, Sample, Send, print_program
from partc.ir.edit import Names
from partc.ir.flow import needed
from partc.ir.graph import Graph, Input, Module, Node, Part, Submodule, Value
from partc.ir.text import print_module
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from passes.map_dependencies import maker_of
from passes.profile_submodules import homes

SOURCE = 0
"""Place of the first interval, which is on the source; as a receiver it stands for the way back."""


@dataclass(frozen=True)
class SplitGraph(Pass):
    """Give every device in use its part; the whole graph stays in the module, to be compared with."""

    name: ClassVar[str] = "split-graph"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "split"

    target: str = Default("")
    """Path of devices.yaml, which says what each part is lowered to; without it every part is for `null`."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.parts`, in the order in which a step first comes to each device."""
        before = print_module(module)
        module.parts = split(module)
        if self.target:
            devices = load_devices(self.target).devices
            for part in module.parts:
                part.target = devices[part.device].target
        return before != print_module(module)


@dataclass
class Stage:
    """One interval of the plan: its device, its nodes, and what it takes and gives in a step."""

    device: str
    nodes: list[Node]
    """Shared nodes that it needs, then those of its sub-modules."""
    receives: dict[int, list[Value]] = field(default_factory=dict)
    """Place of the sender → values of its one message."""
    sends: dict[int, list[Value]] = field(default_factory=dict)
    """Place of the receiver → values of the one message to it."""
    keeps: list[Value] = field(default_factory=list)
    """What later intervals of the same device read."""
    results: list[Value] = field(default_factory=list)
    """Outputs of the whole graph that this place has."""


def split(module: Module) -> list[Part]:
    """The parts that the plan of `module` describes, the source's first; O(V + E) per interval.

    A device may have several intervals: each is a graph of its own, numbered in the order of a step, and one
    program runs them. Values, nodes and leaves are clones that keep their names, so that a target may rewrite
    one graph and leave the others and the whole graph alone; the contents of constants are not copied.

    Raises:
        PlanError: there is no plan, or it is for another graph.
    """
    ring = assigned(module)
    stages = [Stage(device, _nodes(module, place, members)) for place, (device, members) in enumerate(ring)]
    _exchange(module, stages, ring)
    graphs = [part_graph(module.graph, stage, f"part_{place}") for place, stage in enumerate(stages)]
    phases = ("prefill", "decode") if module.info.has_states else ("prefill",)
    parts = []
    for device in dict.fromkeys(stage.device for stage in stages):
        places = [place for place, stage in enumerate(stages) if stage.device == device]
        program = print_program(instructions(module, stages, places, graphs))
        parts.append(Part(device, [graphs[place] for place in places], dict.fromkeys(phases, program)))
    return parts


def assigned(module: Module) -> list[tuple[str, list[Submodule]]]:
    """The intervals of the plan, in order: device and sub-modules; a device may come again."""
    if module.plan is None or module.submodules is None:
        raise PlanError("there is no plan to apply", where="split-graph", hint="run partition-graph before")
    names = module.plan["answer"]["assignment"] or []
    if len(names) != len(module.submodules):
        raise PlanError(
            f"the plan places {len(names)} sub-modules, the graph has {len(module.submodules)}",
            where="split-graph",
            hint="plan again: run partition-graph on this graph",
        )
    pairs = zip(names, module.submodules, strict=True)
    return [(name, [s for _, s in run]) for name, run in groupby(pairs, key=lambda pair: str(pair[0]))]


def _nodes(module: Module, place: int, members: Sequence[Submodule]) -> list[Node]:
    """The nodes of one interval: shared ones that it needs, then its own, in the order of the graph."""
    own = [node for submodule in members for node in submodule.nodes]
    home = homes(module.submodules or ())
    shared = {node for node in module.graph.nodes if node not in home}
    wanted = needed(own, shared)
    if place == SOURCE:
        # What the user wants and every device could make, the source makes.
        ends = {v.producer for v in module.graph.outputs if v.producer in shared}
        wanted |= {node for node in ends if node} | needed([node for node in ends if node], shared)
    return [*(node for node in module.graph.nodes if node in wanted), *own]


def _exchange(module: Module, stages: Sequence[Stage], ring: Sequence[tuple[str, list[Submodule]]]) -> None:
    """Fill in what stages receive, send and keep: SDM and RDM, once per consuming device, and the way back.

    A value goes to the first stage of each device that reads it; later stages there find it where that left it.
    """
    place_of = {submodule.index: place for place, (_, members) in enumerate(ring) for submodule in members}
    home = homes(module.submodules or ())
    readers = module.graph.consumers()
    for value in module.graph.values():
        made = maker_of(value, home)
        if made is None:
            continue
        sender = place_of[made]
        places = sorted({place_of[home[node]] for node in readers.get(value, ()) if node in home} - {sender})
        if any(stages[place].device == stages[sender].device for place in places):
            stages[sender].keeps.append(value)
        for receiver in _first_of_each_device(stages, places):
            if stages[receiver].device != stages[sender].device:
                _send(stages, sender, receiver, value)
    token = _token(module)
    for value in module.graph.outputs[:1] if token else module.graph.outputs:
        made = maker_of(value, home)
        sender = SOURCE if made is None else place_of[made]
        stages[sender].results.append(value)
        if not _has(stages, sender, stages[SOURCE].device, token or value):
            _send(stages, sender, SOURCE, token or value)


def _first_of_each_device(stages: Sequence[Stage], places: Sequence[int]) -> list[int]:
    """Of ascending places the first one of every device."""
    first: dict[str, int] = {}
    for place in places:
        first.setdefault(stages[place].device, place)
    return list(first.values())


def _has(stages: Sequence[Stage], sender: int, device: str, value: Value) -> bool:
    """Whether a device makes what the stage `sender` makes, or is sent `value` by it already."""
    sent = stages[sender].sends.items()
    to = {stages[receiver].device for receiver, values in sent if value in values}
    return device in {stages[sender].device, *to}


def _send(stages: Sequence[Stage], sender: int, receiver: int, value: Value) -> None:
    if receiver < sender and receiver != SOURCE:
        raise InternalError(f"%{value.name} would flow backwards", where=f"{stages[sender].device}")
    stages[sender].sends.setdefault(receiver, []).append(value)
    stages[receiver].receives.setdefault(sender, []).append(value)


def _token(module: Module) -> Value | None:
    """What the last device returns instead of the logits."""
    if not module.info.has_states:
        return None
    return Value(Names(module.graph).fresh("token"), "i64", ("batch",))


def part_graph(whole: Graph, stage: Stage, name: str) -> Graph:
    """The graph of one interval.

    Inputs are the request's, the step's, what earlier intervals of the device left, in the order in which it
    is made, then what it receives, in the order of the senders. Outputs are what it sends, nearest receiver
    first, what later intervals of the device read, then the results that stay here.
    """
    made = {value for node in stage.nodes for value in node.outputs}
    used = {value for node in stage.nodes for value in node.operands}
    received = [value for sender in sorted(stage.receives) for value in stage.receives[sender]]
    own = [value for value in whole.inputs if value not in received]
    known = {*whole.inputs, *received}
    left = [value for value in whole.values() if value.producer is not None and value not in known]
    inputs = [value for value in [*own, *left, *received] if value in used and value not in made]
    clones: dict[Value, Value] = {value: Input(value.name, value.dtype, value.shape) for value in inputs}
    nodes = [_clone_node(node, clones) for node in stage.nodes]
    sent = [value for receiver in sorted(stage.sends) for value in stage.sends[receiver]]
    given = [
        v
        for v in dict.fromkeys([*sent, *stage.keeps, *stage.results])
        if v in made or (v in stage.results and _is_leaf(v))
    ]
    outputs = [_clone(value, clones) for value in given]
    return Graph(name, [v for v in clones.values() if isinstance(v, Input)], outputs, nodes, whole.opset)


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


def instructions(
    module: Module, stages: Sequence[Stage], places: Sequence[int], graphs: Sequence[Graph]
) -> list[Instruction]:
    """What one device does in a step: its stages, and on the source hand the results to the client.

    Programs cannot wait for each other in a circle: all follow the order of the stages, and no message goes
    to an earlier one but those to the end of the source's program.
    """
    token = _token(module)
    program = [step for place in places for step in _stage_program(stages, place, graphs[place], token)]
    if SOURCE not in places:
        return program
    back = _receives(stages, SOURCE)
    return [*program, *back, Emit(_names([token] if token else module.graph.outputs))]


def _stage_program(
    stages: Sequence[Stage], place: int, graph: Graph, token: Value | None
) -> list[Instruction]:
    """Take, run, give."""
    stage = stages[place]
    program: list[Instruction] = [] if place == SOURCE else _receives(stages, place)
    program.append(Run(graph.name, _names(graph.inputs), _names(graph.outputs)))
    program += [Send(_names(stage.sends[to]), stages[to].device) for to in sorted(stage.sends) if to > place]
    if token and stage.results:
        program.append(Sample(stage.results[0].name, token.name))
    return program + [Send(_names(stage.sends[to]), stages[to].device) for to in stage.sends if to == SOURCE]


def _receives(stages: Sequence[Stage], place: int) -> list[Instruction]:
    receives = stages[place].receives
    return [Recv(_names(receives[sender]), stages[sender].device) for sender in sorted(receives)]


def _names(values: Sequence[Value]) -> tuple[str, ...]:
    return tuple(value.name for value in values)
