"""The graphs of devices that share blocks: each has its share of every block, and all of what connects them.

The work of a device is cut into spans: behind each block, where its part of the result goes into a sum, and behind what
the source does by itself, so that the others get what they need of it. All devices have the same number of spans, and
some of them are empty. A span behind a block begins with the slices of the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from partc.errors import PlanError
from partc.ir.edit import Names
from partc.ir.effects import updates
from partc.ir.flow import needed
from partc.ir.graph import Constant, Graph, Input, Node, State, Submodule, Value, Weight
from partc.plan.shared.sums import part_name, sum_name
from passes.profile_submodules import homes
from passes.shards.blocks import Block, bias_of
from passes.shards.divide import Share, partial_product

Leaf = Weight | Constant | State


@dataclass(frozen=True)
class Shared:
    """A sub-module that the devices of a group share."""

    block: Block
    shares: tuple[int, ...]
    """Units of each device."""


@dataclass
class Member:
    """A device of a group, while its work is laid out."""

    rank: int
    count: int
    """Devices of the group."""
    whole: Graph
    free: set[Node]
    """Nodes that every device computes for itself wherever it needs them."""
    names: Names
    spans: list[list[Node]] = field(default_factory=lambda: [[]])
    foreign: dict[Value, int] = field(default_factory=dict)
    """Value that the source alone makes → the span that needs it first."""
    local: dict[Value, Value] = field(default_factory=dict)
    """Value of the whole graph, or of a share → the same on this device."""

    cuts: set[Node] = field(default_factory=set)
    """Nodes that cut this device's part of a result."""

    def own(self, value: Value) -> Value:
        """A value as this device has it; one that it does not make is sent to it."""
        if isinstance(value, Leaf) or (isinstance(value, Input) and (value.is_step or self.rank == 0)):
            return value
        if value not in self.local:
            if value.producer in self.free:
                self._clone(value.producer)
            else:
                self.local[value] = Input(value.name, value.dtype, value.shape)
                self.foreign[value] = len(self.spans) - 1
        return self.local[value]

    def take(self, nodes: Iterable[Node]) -> None:
        """Compute these nodes of the whole graph, or of a share, in the span under way."""
        self.spans[-1] += [self._clone(node) for node in nodes]

    def _clone(self, node: Node) -> Node:
        inputs = [None if value is None else self.own(value) for value in node.inputs]
        outputs = [Value(out.name, out.dtype, out.shape) for out in node.outputs]
        self.local.update(zip(node.outputs, outputs, strict=True))
        return Node(node.op, inputs, outputs, dict(node.attributes), node.scope)

    def share(self, shared: Shared) -> None:
        """Compute a share of a block, cut the result, and begin the span behind the sum."""
        block, before = shared.block, sum(shared.shares[: self.rank])
        result = block.end.outputs[0]
        assert result.shape is not None
        widths = _widths(result, self.count)
        if units := shared.shares[self.rank]:
            share = Share(block, range(before, before + units), f".share{self.rank}", self.names)
            inside = [share.clone(node) for node in block.inside]
            product = partial_product(block.end, share)
            self.take([*share.extra, *inside, product])
            pieces = [
                Value(part_name(result.name, self.rank, piece), result.dtype, (*result.shape[:-1], width))
                for piece, width in enumerate(widths)
            ]
            sizes = Constant(
                self.names.fresh(f"{result.name}.widths"), "i64", (self.count,), array=np.array(widths)
            )
            cut = Node(
                "Split", [self.own(product.outputs[0]), sizes], [*pieces], {"axis": -1}, block.end.scope
            )
            self.spans[-1].append(cut)
            self.cuts.add(cut)
        self.spans.append([])
        self._join(block.end, widths)

    def _join(self, end: Node, widths: Sequence[int]) -> None:
        """The result of a block from the slices of the sum, and its bias."""
        result = end.outputs[0]
        assert result.shape is not None
        slices = [
            Input(sum_name(result.name, piece), result.dtype, (*result.shape[:-1], width))
            for piece, width in enumerate(widths)
        ]
        bias = [self.own(value) for value in bias_of(end)]
        joined = Value(
            self.names.fresh(f"{result.name}.sum") if bias else result.name, result.dtype, result.shape
        )
        self.spans[-1].append(Node("Concat", [*slices], [joined], {"axis": -1}, end.scope))
        for value in bias:
            total = Value(result.name, result.dtype, result.shape)
            self.spans[-1].append(Node("Add", [joined, value], [total], scope=end.scope))
            joined = total
        self.local[result] = joined

    def graphs(self, results: Iterable[Value], sent: Iterable[Value]) -> list[Graph | None]:
        """The graph of each span; None where it is empty.

        Args:
            results: values of the whole graph that this device gives to the client or samples from.
            sent: values of the whole graph that it sends to others.
        """
        wanted = {self.local[value] for value in (*results, *sent) if value in self.local}
        free = {value.producer for value in self.local.values() if value.producer} - {
            node for span in self.spans for node in span
        }
        order = list(dict.fromkeys(v.producer for v in self.local.values() if v.producer in free))
        found: list[Graph | None] = []
        for number, span in reversed(list(enumerate(self.spans))):
            outputs = [
                value for node in span for value in node.outputs if value in wanted or node in self.cuts
            ]
            ends = {
                node
                for node in span
                if updates(node) or not wanted.isdisjoint(node.outputs) or node in self.cuts
            }
            live = ends | needed(ends, {*span})
            wanted |= {value for node in live for value in node.operands}
            mine = needed(live, free)
            nodes = [*(node for node in order if node in mine), *(node for node in span if node in live)]
            name = f"span_{number}_{self.rank}"
            found.insert(0, _graph(name, nodes, outputs, self.whole) if live else None)
        return found


def _widths(result: Value, count: int) -> list[int]:
    """Columns of each slice of a result."""
    assert result.shape is not None
    width = result.shape[-1]
    if not isinstance(width, int) or width < count:
        raise PlanError(f"{result.name} has no {count} columns to sum by", hint="let fewer devices share")
    return [width * (piece + 1) // count - width * piece // count for piece in range(count)]


def _graph(name: str, nodes: Sequence[Node], outputs: Sequence[Value], whole: Graph) -> Graph:
    """The nodes as a graph of its own, with copies of all that it shares with others."""
    made = {value for node in nodes for value in node.outputs}
    clones: dict[Value, Value] = {}
    inputs = list[Input]()
    cloned = []
    for node in nodes:
        for value in node.operands:
            if value in clones or value in made:
                continue
            if isinstance(value, Leaf):
                clones[value] = copy(value)
            else:
                clones[value] = Input(value.name, value.dtype, value.shape)
                inputs.append(clones[value])  # type: ignore[arg-type]
        results = [copy(value) for value in node.outputs]
        given = [None if value is None else clones[value] for value in node.inputs]
        cloned.append(Node(node.op, given, results, dict(node.attributes), node.scope))
        clones.update(zip(node.outputs, results, strict=True))
    return Graph(name, inputs, [clones[value] for value in outputs], cloned, whole.opset)


@dataclass(frozen=True)
class Layout:
    """The work of all devices of a group."""

    members: tuple[Member, ...]
    sums: tuple[tuple[int, Shared] | None, ...]
    """Behind each span but the last: the sub-module whose parts are summed; None: values of the source are sent."""


def lay_out(
    graph: Graph, submodules: Sequence[Submodule], shared: Sequence[Shared | None], count: int
) -> Layout:
    """The work of `count` devices, the source first; `shared`: for every sub-module how it is, None: the source's.

    Raises:
        PlanError: a device would need the raw input, or a result is too narrow.
    """
    home = homes(submodules)
    free, names = {node for node in graph.nodes if node not in home}, Names(graph)
    members = tuple(Member(rank, count, graph, free, names) for rank in range(count))
    sums = list[tuple[int, Shared] | None]()
    for submodule, how in zip(submodules, shared, strict=True):
        if how is None:
            members[0].take(submodule.nodes)
            continue
        if submodule.index and shared[submodule.index - 1] is None:
            sums.append(None)
            for member in members:
                member.spans.append([])
        sums.append((submodule.index, how))
        block = {*how.block.inside, how.block.end}
        at = submodule.nodes.index(how.block.end)
        for member in members:
            member.take(node for node in submodule.nodes[:at] if node not in block)
            member.share(how)
            member.take(node for node in submodule.nodes[at:] if node not in block)
    for value in (value for member in members[1:] for value in member.foreign):
        if isinstance(value, Input):
            raise PlanError(f"{value.name} never leaves the source, and all devices would need it")
    return Layout(members, tuple(sums))
