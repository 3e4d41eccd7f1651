"""The graphs of sections: a graph is what a device computes in one call, with copies of all that it shares with others.

Graphs and calls meet by the names of values. A graph is the same wherever its piece is placed: its inputs are in the
order of the model, its outputs in the order in which later pieces read them. What depends on the inputs of a request
alone (an encoder) is a graph by itself, which the first step runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy

from partc.format.program import ONCE
from partc.ir.effects import updates
from partc.ir.flow import needed
from partc.ir.graph import Constant, Graph, Input, Node, State, Value, Weight
from partc.planner.model.pieces import Piece, part_name, section_name
from passes.parts.sections import Graphs, Model, Parts, Section, Work, sections_in
from passes.shards.by_rows import own_sizes, rows_by_sequence

Works = Mapping[Piece, Work]
"""Piece → what its devices do, in the order of a step."""

Leaf = Weight | Constant | State


def draw(model: Model, works: Works, results: Sequence[Value]) -> None:
    """Make the graphs of all sections; what nobody reads is not made. O(V + E) per section, and O(pieces² · values).

    Args:
        model: knows the nodes of the sections.
        works: those of all pieces of all placements.
        results: what the client gets, or the logits.
    """
    _Drawing(model, works, results).draw()


class _Drawing:
    def __init__(self, model: Model, works: Works, results: Sequence[Value]) -> None:
        self.model, self.works, self.results = model, works, results
        self.place = {value.name: place for place, value in enumerate(model.graph.values())}
        owns = [own for work in works.values() for part in sections_in(work) for own in part.nodes if own]
        self.nodes = {id(own): [*self._behind(own), *own] for own in owns}
        """Nodes of a section and a rank, by identity → the same with the free ones that they need."""
        self.reads = {piece: self._reads(work) for piece, work in works.items()}
        self.readers = {value.name: len(works) + place for place, value in enumerate(results)}
        """Value → the first piece that reads it; results that none reads come last, in their order."""
        for number, names in enumerate(self.reads.values()):
            for name in names:
                self.readers[name] = min(number, self.readers.get(name, number))

    def draw(self) -> None:
        model, names = self.model, {value.name for value in self.results}
        given = names - {value.name for node in model.free for value in node.outputs}
        source = next(iter(self.works))
        self._give(names, self.nodes[id(sections_in(self.works[source])[0].nodes[0])])
        is_shared = any(piece.count > 1 for piece in self.works)
        for number, (piece, work) in enumerate(self.works.items()):
            # Other ways of sharing the same sub-modules make these values for themselves.
            others = (self.reads[other] for other in self.works if other.first != piece.first)
            wanted = given.union(self.reads[piece], *others, names if piece is source else ())
            for at, section in enumerate(sections_in(work)):
                for rank, own in enumerate(section.nodes):
                    name = part_name(number) if piece.count == 1 else section_name(number, at, rank)
                    found = self._graphs(piece, name, self.nodes[id(own)], wanted) if own else Graphs()
                    section.graphs.append(found)
                    for graph in found.every if is_shared else ():
                        self._divide_rows(graph, section)

    def _divide_rows(self, graph: Graph, section: Section) -> None:
        """Let devices call a graph for some of the rows."""
        rows_by_sequence(graph, self.model.names)
        if section.kind not in ("alone", "inner"):
            own_sizes(graph)

    def _give(self, results: Collection[str], first: list[Node]) -> None:
        """Results that every device could make are made by the source."""
        free = self.model.free
        ends = [node for node in free if any(value.name in results for value in node.outputs)]
        wanted = {*ends, *needed(ends, {*free}), *first}
        own = [node for node in first if node not in free]
        first[:] = [*(node for node in free if node in wanted), *own]

    def _behind(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """The free nodes that these need, in their order."""
        wanted = needed(nodes, {*self.model.free})
        return (node for node in self.model.free if node in wanted)

    def _reads(self, work: Work) -> set[str]:
        """The values that the sections of a piece are given, and the parts of its sums."""
        parts = [value.name for item in work if isinstance(item, Parts) for value in item.parts if value]
        owns = [own for section in sections_in(work) for own in section.nodes if own]
        return {*parts}.union(*(_reads(self.nodes[id(own)]) for own in owns))

    def _graphs(self, piece: Piece, name: str, nodes: Sequence[Node], wanted: Set[str]) -> Graphs:
        """The graph of the nodes that are computed once a request, and the graph of the rest.

        Nodes that depend on weights alone go to both where both need them.
        """
        first = [node for node in nodes if node in self.model.once]
        if not first:
            return Graphs(None, self._graph(piece, name, nodes, wanted, self._leaves(piece)))
        others = {node for node in nodes if node not in self.model.once}
        plain = needed(first, others)
        rest = others - plain
        rest |= needed(rest, plain)
        steps, own = [node for node in nodes if node in rest], {*first, *plain}
        before = [node for node in nodes if node in own]
        once = self._graph(piece, name + ONCE, before, wanted | _reads(steps))
        return Graphs(once, self._graph(piece, name, steps, wanted, self._leaves(piece)))

    def _leaves(self, piece: Piece) -> Iterator[Value]:
        """Results that nobody computes, weights and constants: the source gives them."""
        return (value for value in self.results if isinstance(value, Leaf) and piece.first == 0)

    def _place(self, value: Input, piece: Piece) -> tuple[bool, int]:
        """The order of the model; behind the first piece, what every device has by itself comes before it."""
        return piece.first > 0 and not value.is_step, self.place.get(value.name, len(self.place))

    def _graph(
        self,
        piece: Piece,
        name: str,
        nodes: Sequence[Node],
        wanted: Set[str],
        leaves: Iterable[Value] = (),
    ) -> Graph | None:
        """A graph of the nodes that are needed, and of `leaves`, with copies of all that it shares with others."""
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
        outputs += [clones.setdefault(leaf.name, copy(leaf)) for leaf in leaves]
        inputs.sort(key=lambda value: self._place(value, piece))
        outputs.sort(key=lambda value: self.readers.get(value.name, len(self.works)))
        return Graph(name, inputs, outputs, cloned, self.model.graph.opset) if outputs or cloned else None


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
