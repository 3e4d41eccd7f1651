"""The graphs of devices that share stages: each has its shares of blocks, and all of what connects them.

A *holding* is consecutive sub-modules on the same devices in the same shares, whatever the phase: phases that have the
same holding run the same graphs, with the same weights and states. It is cut into pieces, one graph a device: behind
every block, where its parts are summed, and where some phase computes by tiles, also around what enters and leaves it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal

from partc.ir.edit import Names
from partc.ir.effects import updates
from partc.ir.flow import needed
from partc.ir.graph import Constant, Graph, Input, Node, State, Submodule, Value, Weight
from partc.ir.homes import homes
from partc.planner.groups.exchanges import sum_name
from passes.shards.blocks import SUM_TYPE, Block
from passes.shards.by_rows import own_sizes, rows_apart, rows_by_sequence
from passes.shards.divide import Share, behind_sum, is_sum_alone, partial_product
from passes.shards.sections import sections_of

Leaf = Weight | Constant | State
Kind = Literal["alone", "connect", "enter", "inner", "leave"]


@dataclass(frozen=True)
class Holding:
    """Sub-modules of one or several devices."""

    first: int
    devices: tuple[str, ...]
    shares: tuple[tuple[str, tuple[int, ...]], ...]
    """For each sub-module how it is shared, and the units of each device."""


@dataclass
class Piece:
    """What the devices of a holding compute in one call each."""

    kind: Kind
    submodule: int
    """The one that it belongs to; of several, the first."""
    nodes: tuple[list[Node] | None, ...]
    """By rank; None where a device has no share."""
    graphs: list[Graph | None] = field(default_factory=list)
    """By rank; None where nothing is to compute."""


@dataclass(frozen=True)
class Parts:
    """Behind a block: the parts of its result."""

    submodule: int
    total: Value
    parts: tuple[Value | None, ...]
    leave: Piece | None
    """What makes them, where that is a piece by itself."""


Work = list[Piece | Parts]


class Drawing:
    """The pieces of all holdings of a graph, while they are drawn."""

    def __init__(self, graph: Graph, submodules: Sequence[Submodule], blocks: Mapping[int, Block]) -> None:
        home = homes(submodules)
        self.graph, self.submodules, self.blocks = graph, submodules, blocks
        self.free = dict.fromkeys(node for node in graph.nodes if node not in home)
        """Nodes that every device computes for itself wherever it needs them."""
        self.names = Names(graph)
        self.drawn = 0
        """Pieces that are drawn."""

    def work(self, holding: Holding, by_tiles: Collection[int]) -> Work:
        """The pieces of a holding.

        Args:
            holding: sub-modules.
            by_tiles: those whose rows are divided in some phase.
        """
        if len(holding.devices) == 1:
            last = holding.first + len(holding.shares)
            nodes = [node for part in self.submodules[holding.first : last] for node in part.nodes]
            return [Piece("alone", holding.first, (nodes,))]
        return _Group(self, holding, by_tiles).work()

    def draw(self, works: Mapping[Holding, Work], results: Collection[str]) -> None:
        """Make the graphs of all pieces of one placement; what nobody reads is not made.

        Args:
            works: those of all holdings, in the order of a step.
            results: names of the values that the client gets.
        """
        pieces = {holding: [p for item in work for p in _pieces_of(item)] for holding, work in works.items()}
        nodes = {
            id(own): [*self._behind(own), *own]
            for some in pieces.values()
            for p in some
            for own in p.nodes
            if own
        }
        reads = {holding: _reads_of(work, nodes) for holding, work in works.items()}
        given = {*results} - {value.name for node in self.free for value in node.outputs}
        first = next(iter(works))
        self._give(results, nodes[id(pieces[first][0].nodes[0])])
        for holding, some in pieces.items():
            # Phases with other holdings of the same sub-modules make these values for themselves.
            others = (reads[other] for other in works if other.first != holding.first)
            wanted = given.union(reads[holding], *others, results if holding == first else ())
            for piece in some:
                for rank, own in enumerate(piece.nodes):
                    name = f"span_{self.drawn}" + (f"_{rank}" if len(piece.nodes) > 1 else "")
                    graph = self._graph(name, nodes[id(own)], wanted) if own else None
                    if graph:
                        rows_by_sequence(graph, self.names)
                    if graph and piece.kind not in ("alone", "inner"):
                        own_sizes(graph)
                    piece.graphs.append(graph)
                self.drawn += 1

    def _give(self, results: Collection[str], first: list[Node]) -> None:
        """Results that every device could make are made by the source."""
        ends = [node for node in self.free if any(value.name in results for value in node.outputs)]
        wanted = {*ends, *needed(ends, {*self.free}), *first}
        own = [node for node in first if node not in self.free]
        first[:] = [*(node for node in self.free if node in wanted), *own]

    def _behind(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """The free nodes that these need, in their order."""
        wanted = needed(nodes, {*self.free})
        return (node for node in self.free if node in wanted)

    def _graph(self, name: str, nodes: Sequence[Node], wanted: Collection[str]) -> Graph | None:
        """A graph of the nodes that are needed, with copies of all that it shares with others."""
        ends = [
            node for node in nodes if updates(node) or any(value.name in wanted for value in node.outputs)
        ]
        live = {*ends, *_needed_by_name(ends, nodes)}
        clones: dict[str, Value] = {}
        cloned, inputs = list[Node](), list[Input]()
        for node in (node for node in nodes if node in live):
            for value in node.operands:
                if value.name not in clones:
                    clones[value.name] = _taken(value)
                    inputs += [clone for clone in [clones[value.name]] if isinstance(clone, Input)]
            outputs = [Value(value.name, value.dtype, value.shape) for value in node.outputs]
            given = [None if value is None else clones[value.name] for value in node.inputs]
            cloned.append(Node(node.op, given, outputs, dict(node.attributes), node.scope))
            clones.update((value.name, value) for value in outputs)
        outputs = [value for node in cloned for value in node.outputs if value.name in wanted]
        return Graph(name, inputs, outputs, cloned, self.graph.opset) if cloned else None


class _Group:
    """The pieces of one holding of several devices."""

    def __init__(self, drawing: Drawing, holding: Holding, by_tiles: Collection[int]) -> None:
        self.drawing, self.holding, self.by_tiles = drawing, holding, by_tiles
        self.count = len(holding.devices)
        self.items: Work = []
        self.open: tuple[list[Node], ...] = self._nothing()
        """What has been computed since the last piece, by rank."""

    def _nothing(self) -> tuple[list[Node], ...]:
        return tuple([] for _ in range(self.count))

    def work(self) -> Work:
        for j, (share, units) in enumerate(self.holding.shares, self.holding.first):
            if j not in self.by_tiles and j - 1 in self.by_tiles:
                self._close("connect", j - 1)
            if share == "sequence":
                self._whole(j)
            else:
                self._share(j, units)
        self._close("connect", self.holding.first + len(self.holding.shares) - 1)
        return self.items

    def _close(self, kind: Kind, j: int) -> Piece | None:
        """End a piece; the piece, if there is anything in it."""
        nodes, self.open = self.open, self._nothing()
        if not any(nodes):
            return None
        piece = Piece(kind, j, tuple(own or None for own in nodes))
        self.items.append(piece)
        return piece

    def _add(self, nodes: Sequence[Sequence[Node]]) -> None:
        for mine, own in zip(self.open, nodes, strict=True):
            mine.extend(own)

    def _same(self, nodes: Sequence[Node]) -> list[Sequence[Node]]:
        return [nodes] * self.count

    def _whole(self, j: int) -> None:
        """All of a block on every device."""
        sections = sections_of(self.drawing.submodules[j], self.drawing.blocks[j])
        kinds: tuple[Kind, ...] = ("connect", "enter", "inner", "leave")
        each = (sections.before, sections.enter, sections.inner, sections.leave)
        for kind, nodes in zip(kinds, each, strict=True):
            self._add(self._same(nodes))
            self._close(kind, j)
        self._follow(j, sections.after)

    def _share(self, j: int, units: Sequence[int]) -> None:
        """A share of a block on each device."""
        block = self.drawing.blocks[j]
        sections = sections_of(self.drawing.submodules[j], block)
        shares = [self._clones(block, units, rank) for rank in range(self.count)]
        apart = j in self.by_tiles
        self._add(self._same(sections.before))
        if apart:
            self._close("connect", j)
        kinds: tuple[Kind, ...] = ("enter", "inner")
        for kind, nodes in zip(kinds, (sections.enter, sections.inner), strict=True):
            self._add([_made(made, nodes) for made in shares])
            if apart:
                self._close(kind, j)
        self._add([_made(made, sections.leave) for made in shares])
        leave = self._close("leave" if apart else "alone", j)
        if leave and apart:
            self.items.remove(leave)
        total, behind = self._total(block)
        parts = tuple(made[block.end][-1].outputs[0] if made else None for made in shares)
        self.items.append(Parts(j, total, parts, leave if apart else None))
        self._follow(j, [*behind, *sections.after])

    def _follow(self, j: int, nodes: Sequence[Node]) -> None:
        """What stands behind a block; where rows are divided, what needs them all is a piece by itself."""
        apart, rest = rows_apart(nodes) if j in self.by_tiles else (nodes, [])
        self._add(self._same(apart))
        if rest:
            self._close("connect", j)
            self._add(self._same(rest))

    def _clones(self, block: Block, units: Sequence[int], rank: int) -> dict[Node, list[Node]]:
        """Node of a block → the same for a share; none where the share is nothing."""
        first = sum(units[:rank])
        if not units[rank]:
            return {}
        drawing = self.drawing
        share = Share(block, range(first, first + units[rank]), f".share{rank}", drawing.names)
        made = {node: [share.clone(node)] for node in block.inside}
        made[block.end] = partial_product(block.end, share)
        drawing.free |= dict.fromkeys(share.extra)
        return made

    def _total(self, block: Block) -> tuple[Value, list[Node]]:
        """The sum of the parts, and what stands behind it, which ends in a value named as the block's result."""
        result = block.end.outputs[0]
        if is_sum_alone(block.end):
            return result, []
        names = self.drawing.names
        total = Value(names.fresh(sum_name(result.name)), SUM_TYPE, result.shape)
        named = Value(result.name, result.dtype, result.shape)
        return total, behind_sum(block.end, total, named, names)


def _made(made: Mapping[Node, Sequence[Node]], nodes: Sequence[Node]) -> list[Node]:
    """The nodes of a share, if it has any."""
    return [clone for node in nodes for clone in made.get(node, ())]


def _pieces_of(item: Piece | Parts) -> list[Piece]:
    if isinstance(item, Piece):
        return [item]
    return [item.leave] if item.leave else []


def _reads_of(work: Work, nodes: Mapping[int, Sequence[Node]]) -> set[str]:
    """The values that the pieces of a holding are given, and the parts of its sums."""
    parts = [value.name for item in work if isinstance(item, Parts) for value in item.parts if value]
    owns = [own for item in work for piece in _pieces_of(item) for own in piece.nodes if own]
    return {*parts}.union(*(_reads(nodes[id(own)]) for own in owns))


def _taken(value: Value) -> Value:
    """A value that a graph does not make, as it has it."""
    return copy(value) if isinstance(value, Leaf) else Input(value.name, value.dtype, value.shape)


def _reads(nodes: Sequence[Node]) -> set[str]:
    """The values that nodes are given."""
    made = {value.name for node in nodes for value in node.outputs}
    return {
        value.name
        for node in nodes
        for value in node.operands
        if value.name not in made and not isinstance(value, Leaf)
    }


def _needed_by_name(ends: Sequence[Node], nodes: Sequence[Node]) -> set[Node]:
    """The nodes that `ends` depend on; a value may have been made anew under its name."""
    maker = {value.name: node for node in nodes for value in node.outputs}
    found: set[Node] = set()
    stack = [*ends]
    while stack:
        for value in stack.pop().operands:
            node = maker.get(value.name)
            if node is not None and node not in found:
                found.add(node)
                stack.append(node)
    return found
