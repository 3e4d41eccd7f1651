"""`split-graph`: applies the plan. Every device in use gets a graph of its own and a program per phase."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar

from partc.config.devices import load_devices
from partc.errors import InternalError, PlanError
from partc.ir.flow import needed
from partc.ir.graph import Graph, Input, Module, Node, Part, Submodule, Value, fresh_name
from partc.ir.text import print_module
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.runtime.program import Emit, Instruction, Recv, Run, Sample, Send, print_program
from passes.map_dependencies import maker_of
from passes.profile_submodules import homes

SOURCE = 0
"""Place of the source in the ring."""


@dataclass(frozen=True)
class SplitGraph(Pass):
    """Give every device in use its part; the whole graph stays in the module, to be compared with."""

    name: ClassVar[str] = "split-graph"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "split"

    target: str = Default("")
    """Path of devices.yaml, which says what each part is lowered to; without it every part is for `null`."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.parts`, in ring order."""
        before = print_module(module)
        module.parts = split(module)
        if self.target:
            devices = load_devices(self.target).devices
            for part in module.parts:
                part.target = devices[part.device].target
        return before != print_module(module)


@dataclass
class Stage:
    """One place in the ring: its device, its nodes, and what it takes and gives in a step."""

    device: str
    nodes: list[Node]
    """Shared nodes that it needs, then those of its sub-modules."""
    receives: dict[int, list[Value]] = field(default_factory=dict)
    """Place of the sender → values of its one message."""
    sends: dict[int, list[Value]] = field(default_factory=dict)
    """Place of the receiver → values of the one message to it."""
    results: list[Value] = field(default_factory=list)
    """Outputs of the whole graph that this place has."""


def split(module: Module) -> list[Part]:
    """The parts that the plan of `module` describes, in ring order; O(V + E) per device.

    Values, nodes and leaves are clones that keep their names, so that a target may rewrite one part and
    leave the others and the whole graph alone; the contents of constants are not copied.

    Raises:
        PlanError: there is no plan, or it gives a device more than one interval.
    """
    ring = assigned(module)
    stages = [Stage(device, _nodes(module, place, members)) for place, (device, members) in enumerate(ring)]
    _exchange(module, stages, ring)
    phases = ("prefill", "decode") if module.info.has_states else ("prefill",)
    parts = []
    for place, stage in enumerate(stages):
        graph = part_graph(module.graph, stage, f"part_{place}")
        program = print_program(instructions(module, stages, place, graph))
        parts.append(Part(stage.device, graph, dict.fromkeys(phases, program)))
    return parts


def assigned(module: Module) -> list[tuple[str, list[Submodule]]]:
    """Devices in ring order, each with its interval of sub-modules."""
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
    ring = [(name, [s for _, s in run]) for name, run in groupby(pairs, key=lambda pair: str(pair[0]))]
    devices = [device for device, _ in ring]
    if twice := [device for place, device in enumerate(devices) if device in devices[:place]]:
        raise PlanError(
            f"the plan gives {twice[0]} sub-modules that are not consecutive",
            where="split-graph",
            hint="use a strategy that gives every device one interval, such as `optimal`",
        )
    return ring


def _nodes(module: Module, place: int, members: Sequence[Submodule]) -> list[Node]:
    """The nodes of one device: shared ones that it needs, then its own, in the order of the graph."""
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
    """Fill in what stages receive and send: SDM and RDM, once per consuming device, and the way back."""
    place_of = {submodule.index: place for place, (_, members) in enumerate(ring) for submodule in members}
    home = homes(module.submodules or ())
    readers = module.graph.consumers()
    for value in module.graph.values():
        made = maker_of(value, home)
        if made is None:
            continue
        sender = place_of[made]
        for receiver in sorted(
            {place_of[home[node]] for node in readers.get(value, ()) if node in home} - {sender}
        ):
            _send(stages, sender, receiver, value)
    token = _token(module)
    for value in module.graph.outputs[:1] if token else module.graph.outputs:
        made = maker_of(value, home)
        sender = SOURCE if made is None else place_of[made]
        stages[sender].results.append(value)
        if sender != SOURCE:
            _send(stages, sender, SOURCE, token or value)


def _send(stages: Sequence[Stage], sender: int, receiver: int, value: Value) -> None:
    if receiver < sender and receiver != SOURCE:
        raise InternalError(f"%{value.name} would flow backwards", where=f"{stages[sender].device}")
    stages[sender].sends.setdefault(receiver, []).append(value)
    stages[receiver].receives.setdefault(sender, []).append(value)


def _token(module: Module) -> Value | None:
    """What the last device returns instead of the logits."""
    if not module.info.has_states:
        return None
    taken = (value.name for value in module.graph.values())
    return Value(fresh_name("token", taken), "i64", ("batch",))


def part_graph(whole: Graph, stage: Stage, name: str) -> Graph:
    """The graph of one device: inputs are the request's, the step's, then what it receives in ring order.

    Outputs are what it sends, nearest receiver first, then the results that stay here.
    """
    made = {value for node in stage.nodes for value in node.outputs}
    used = {value for node in stage.nodes for value in node.operands}
    received = [value for sender in sorted(stage.receives) for value in stage.receives[sender]]
    own = [value for value in whole.inputs if value not in received]
    inputs = [value for value in [*own, *received] if value in used and value not in made]
    clones: dict[Value, Value] = {value: Input(value.name, value.dtype, value.shape) for value in inputs}
    nodes = [_clone_node(node, clones) for node in stage.nodes]
    sent = [value for receiver in sorted(stage.sends) for value in stage.sends[receiver]]
    given = [
        v for v in dict.fromkeys([*sent, *stage.results]) if v in made or (v in stage.results and _is_leaf(v))
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


def instructions(module: Module, stages: Sequence[Stage], place: int, graph: Graph) -> list[Instruction]:
    """What one device does in a step: take, run, give, and on the source hand the results to the client."""
    stage = stages[place]
    names = {other: device.device for other, device in enumerate(stages)}
    token = _token(module)
    program: list[Instruction] = [
        Recv(_names(stage.receives[sender]), names[sender])
        for sender in sorted(stage.receives)
        if sender < place
    ]
    program.append(Run(graph.name, _names(graph.inputs), _names(graph.outputs)))
    program += [Send(_names(stage.sends[to]), names[to]) for to in sorted(stage.sends) if to > place]
    if token and stage.results:
        program.append(Sample(stage.results[0].name, token.name))
    if place != SOURCE:
        return program + [Send(_names(stage.sends[to]), names[to]) for to in stage.sends if to == SOURCE]
    back = [Recv(_names(stage.receives[sender]), names[sender]) for sender in sorted(stage.receives)]
    return [*program, *back, Emit(_names([token] if token else module.graph.outputs))]


def _names(values: Sequence[Value]) -> tuple[str, ...]:
    return tuple(value.name for value in values)
