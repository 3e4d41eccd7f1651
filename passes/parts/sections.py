"""The sections of pieces: what the devices of a piece compute, one graph a device.

A piece of one device has one section. One that several devices share is cut into sections behind every block, where its
parts are summed, and where some phase computes by tiles, also around what enters and leaves it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from partc.ir.edit import Names
from partc.ir.graph import Graph, Node, Submodule, Value
from partc.ir.homes import homes
from partc.ir.once import once_nodes
from partc.planner.model.pieces import Piece
from partc.planner.programs.exchanges import sum_name
from partc.planner.programs.work import Kind
from passes.shards.blocks import SUM_TYPE, Block
from passes.shards.by_rows import rows_apart
from passes.shards.divide import Share, behind_sum, is_sum_alone, partial_product
from passes.shards.sections import sections_of


@dataclass
class Graphs:
    """The graphs of one device for a section, as far as it has nodes for them."""

    once: Graph | None = None
    """Run in the first step of a request alone, before `steps`."""
    steps: Graph | None = None
    """Run in all steps."""

    @property
    def every(self) -> list[Graph]:
        """Those that there are."""
        return [graph for graph in (self.once, self.steps) if graph is not None]


@dataclass
class Section:
    """A part of a piece that each of its devices computes in one call."""

    kind: Kind
    submodule: int
    """The one that it belongs to; of several, the first."""
    nodes: tuple[list[Node] | None, ...]
    """By rank; None where a device has no share."""
    graphs: list[Graphs] = field(default_factory=list)
    """By rank."""


@dataclass(frozen=True)
class Parts:
    """Behind a block: the parts of its result."""

    submodule: int
    total: Value
    parts: tuple[Value | None, ...]
    leave: Section | None
    """The section that makes them, where it is one by itself."""
    is_once: bool
    """Whether they are the same in all steps of a request."""


Work = list[Section | Parts]
"""The sections of a piece and the sums between them, in order."""


def sections_in(work: Work) -> list[Section]:
    """The sections, in order."""
    found = (item if isinstance(item, Section) else item.leave for item in work)
    return [section for section in found if section]


class Model:
    """A graph whose pieces are cut into sections, and the nodes that cutting adds."""

    def __init__(self, graph: Graph, submodules: Sequence[Submodule], blocks: Mapping[int, Block]) -> None:
        home = homes(submodules)
        self.graph, self.submodules, self.blocks = graph, submodules, blocks
        self.free = dict.fromkeys(node for node in graph.nodes if node not in home)
        """Nodes that every device computes for itself wherever it needs them."""
        self.once = once_nodes(graph)
        """Nodes that are computed in the first step of a request alone."""
        self.names = Names(graph)

    def nodes(self, piece: Piece) -> Iterator[Node]:
        """The nodes of the sub-modules of a piece, undivided."""
        return (node for j in piece.indices for node in self.submodules[j].nodes)

    def work(self, piece: Piece, by_tiles: Collection[int]) -> Work:
        """The work of the devices of a piece.

        Args:
            piece: sub-modules.
            by_tiles: those whose rows are divided in some phase.
        """
        if piece.count == 1:
            return [Section("alone", piece.first, ([*self.nodes(piece)],))]
        return SharedPiece(self, piece, by_tiles).work()


class SharedPiece:
    """The sections of one piece of several devices."""

    def __init__(self, model: Model, piece: Piece, by_tiles: Collection[int]) -> None:
        self.model, self.piece, self.by_tiles = model, piece, by_tiles
        self.count = piece.count
        self.items: Work = []
        self.open: tuple[list[Node], ...] = self._nothing()
        """The nodes since the last section, by rank."""

    def _nothing(self) -> tuple[list[Node], ...]:
        return tuple([] for _ in range(self.count))

    def work(self) -> Work:
        """The sections, and the sums between them."""
        for j, (share, units) in enumerate(self.piece.shares, self.piece.first):
            if j not in self.by_tiles and j - 1 in self.by_tiles:
                self._close("connect", j - 1)
            if share == "sequence":
                self._whole(j)
            else:
                self._share(j, units)
        self._close("connect", self.piece.submodules[1])
        return self.items

    def _close(self, kind: Kind, j: int) -> Section | None:
        """End a section; the section, if there is anything in it."""
        nodes, self.open = self.open, self._nothing()
        if not any(nodes):
            return None
        section = Section(kind, j, tuple(own or None for own in nodes))
        self.items.append(section)
        return section

    def _add(self, nodes: Sequence[Sequence[Node]]) -> None:
        for mine, own in zip(self.open, nodes, strict=True):
            mine.extend(own)

    def _same(self, nodes: Sequence[Node]) -> list[Sequence[Node]]:
        return [nodes] * self.count

    def _whole(self, j: int) -> None:
        """All of a block on every device."""
        sections = sections_of(self.model.submodules[j], self.model.blocks[j])
        kinds: tuple[Kind, ...] = ("connect", "enter", "inner", "leave")
        each = (sections.before, sections.enter, sections.inner, sections.leave)
        for kind, nodes in zip(kinds, each, strict=True):
            self._add(self._same(nodes))
            self._close(kind, j)
        self._follow(j, sections.after)

    def _share(self, j: int, units: Sequence[int]) -> None:
        """A share of a block on each device."""
        block = self.model.blocks[j]
        sections = sections_of(self.model.submodules[j], block)
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
        is_once = block.end in self.model.once
        self.items.append(Parts(j, total, parts, leave if apart else None, is_once))
        self.model.once |= {*behind} if is_once else set()
        self._follow(j, [*behind, *sections.after])

    def _follow(self, j: int, nodes: Sequence[Node]) -> None:
        """Go on behind a block; where rows are divided, nodes that need them all are a section by themselves."""
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
        model = self.model
        share = Share(block, range(first, first + units[rank]), f".share{rank}", model.names)
        made = {node: [share.clone(node)] for node in block.inside}
        made[block.end] = partial_product(block.end, share)
        model.free |= dict.fromkeys(share.extra)
        model.once.update(clone for node, clones in made.items() if node in model.once for clone in clones)
        return made

    def _total(self, block: Block) -> tuple[Value, list[Node]]:
        """The sum of the parts, and what stands behind it, which ends in a value named as the block's result."""
        result = block.end.outputs[0]
        if is_sum_alone(block.end):
            return result, []
        names = self.model.names
        total = Value(names.fresh(sum_name(result.name)), SUM_TYPE, result.shape)
        named = Value(result.name, result.dtype, result.shape)
        return total, behind_sum(block.end, total, named, names)


def _made(made: Mapping[Node, Sequence[Node]], nodes: Sequence[Node]) -> list[Node]:
    """The nodes of a share, if it has any."""
    return [clone for node in nodes for clone in made.get(node, ())]
