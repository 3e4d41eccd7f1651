"""The nodes of one graph that are those of another. Names do not count: libraries make them from counters.

In order, each on what is left:

1. nodes that compute the same from the same weights, inputs and states (a hash of all that a node depends on);
2. nodes whose results are used in the same way up to the outputs (a hash of all that depends on a node): behind a
   layer that is gone, everything is as it was;
3. anchors: nodes of one operator that read the same weights or states, where as many do so in both graphs;
4. neighbours: nodes of one operator whose operands are matched, or whose readers are, at the same places; repeated;
5. nodes of one operator at one place of the model, in order; then whatever is at that place, as another operator.

O(V + E) for each round; there are as many rounds of 4 as a chain of unmatched nodes is long.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from partc.ir.graph import Constant, Graph, Input, Node, State, Value, Weight
from partc.ir.sizes import attributes_key
from partc.ir.weights import Join, Leaf, Step, WeightExpr, print_expr

Key = Hashable


@dataclass
class Matching:
    """Two graphs, node by node."""

    before: Graph
    after: Graph
    pairs: dict[Node, Node] = field(default_factory=dict)
    """Node of `before` → node of `after`."""
    found: dict[Node, Node] = field(default_factory=dict)
    """The same the other way round."""

    @property
    def removed(self) -> list[Node]:
        """Nodes of `before` that are gone."""
        return [node for node in self.before.nodes if node not in self.pairs]

    @property
    def added(self) -> list[Node]:
        """Nodes of `after` that are new."""
        return [node for node in self.after.nodes if node not in self.found]

    def pair(self, one: Node, other: Node) -> None:
        """Two nodes are the same one."""
        self.pairs[one], self.found[other] = other, one

    def same(self, one: Value, other: Value) -> bool:
        """Whether two values are made by matched nodes, or are the same leaf."""
        if one.producer is None or other.producer is None:
            return leaf_key(one) == leaf_key(other)
        return self.pairs.get(one.producer) is other.producer and one.producer.outputs.index(
            one
        ) == other.producer.outputs.index(other)


def match_graphs(before: Graph, after: Graph) -> Matching:
    """Match the nodes of two graphs; see the top of this file."""
    found = Matching(before, after)
    _pair_by(found, _computed(before), _computed(after), unequal=True)
    _pair_by(found, _used(before), _used(after), unequal=True)
    _pair_by(found, _anchors(before), _anchors(after))
    _pair_neighbours(found)
    for place in (lambda node: (node.op, node.scope), lambda node: node.scope):
        _pair_by(found, _by(before, place), _by(after, place))
        _pair_neighbours(found)
    return found


def leaf_key(value: Value) -> Key:
    """What a value without a producer is, whatever it is called."""
    match value:
        case Weight(source=source) if source is not None:
            return "weight", print_expr(without_files(source))
        case Constant(array=array) if array is not None:
            return "constant", str(array.dtype), array.shape, array.tobytes()
        case State(name=name):
            return "state", name
        case Input(name=name) | Value(name=name):
            return "input", name


def without_files(expr: WeightExpr) -> WeightExpr:
    """The same without the names of files: a checkpoint may be stored in other shards."""
    match expr:
        case Leaf(key=key):
            return Leaf("", key)
        case Join(op=op, argument=argument, parts=parts):
            return Join(op, argument, tuple(map(without_files, parts)))
        case Step(op=op, arguments=arguments, source=source):
            return Step(op, arguments, without_files(source))


def _pair_by(
    found: Matching, before: Mapping[Node, Key], after: Mapping[Node, Key], *, unequal: bool = False
) -> None:
    """Pair unmatched nodes of one key, in order; where a key has unequal numbers of them only with `unequal`."""
    groups: dict[Key, tuple[list[Node], list[Node]]] = defaultdict(lambda: ([], []))
    for side, keys, known in ((0, before, found.pairs), (1, after, found.found)):
        for node, key in keys.items():
            if node not in known and key is not None:
                groups[key][side].append(node)
    for ours, others in groups.values():
        if unequal or len(ours) == len(others):
            for one, other in zip(ours, others, strict=False):
                found.pair(one, other)


def _computed(graph: Graph) -> dict[Node, Key]:
    """Node → a hash of everything that it depends on."""
    keys: dict[Value, Key] = {}

    def key_of(value: Value | None) -> Key:
        if value is None:
            return None
        if value not in keys:
            keys[value] = leaf_key(value)
        return keys[value]

    hashes: dict[Node, Key] = {}
    for node in graph.nodes:
        hashes[node] = _hash(_own(node), [key_of(value) for value in node.inputs])
        for place, output in enumerate(node.outputs):
            keys[output] = hashes[node], place
    return hashes


def _used(graph: Graph) -> dict[Node, Key]:
    """Node → a hash of everything that depends on it, and of the other operands that it meets there."""
    uses: dict[Value, list[Key]] = defaultdict(list)
    for place, value in enumerate(graph.outputs):
        uses[value].append(("output", place))
    hashes: dict[Node, Key] = {}
    for node in reversed(graph.nodes):
        leaves = [leaf_key(value) if value and value.producer is None else None for value in node.inputs]
        readers = [sorted(map(repr, uses[output])) for output in node.outputs]
        hashes[node] = _hash(_own(node), leaves, readers)
        for place, operand in enumerate(node.inputs):
            if operand is not None:
                uses[operand].append((hashes[node], place))
    return hashes


def _anchors(graph: Graph) -> dict[Node, Key]:
    """Nodes that read weights or states → which."""
    found: dict[Node, Key] = {}
    for node in graph.nodes:
        leaves = tuple(leaf_key(value) for value in node.operands if isinstance(value, Weight | State))
        found[node] = (node.op, leaves) if leaves else None
    return found


def _pair_neighbours(found: Matching) -> None:
    """Pair what stands between matched nodes, until nothing new is found."""
    before, after = found.before.consumers(), found.after.consumers()
    waiting = list(found.pairs.items())
    while waiting:
        one, other = waiting.pop()
        for ours, others in _meetings(one, other, before, after):
            if ours not in found.pairs and others not in found.found and ours.op == others.op:
                found.pair(ours, others)
                waiting.append((ours, others))


def _meetings(
    one: Node, other: Node, before: Mapping[Value, list[Node]], after: Mapping[Value, list[Node]]
) -> Iterable[tuple[Node, Node]]:
    """Nodes that stand in the same way to two matched ones: producers of operands, readers of results."""
    for ours, others in zip(one.inputs, other.inputs, strict=False):
        if ours and others and ours.producer and others.producer:
            yield ours.producer, others.producer
    for ours, others in zip(one.outputs, other.outputs, strict=False):
        readers: dict[Key, list[Node]] = defaultdict(list)
        for node in after.get(others, ()):
            readers[_reading(node, others)].append(node)
        for node in before.get(ours, ()):
            if known := readers.get(_reading(node, ours)):
                yield node, known.pop(0)


def _reading(node: Node, value: Value) -> Key:
    return node.op, tuple(place for place, operand in enumerate(node.inputs) if operand is value)


def _by(graph: Graph, key: Callable[[Node], Key]) -> dict[Node, Key]:
    return {node: key(node) for node in graph.nodes}


def _own(node: Node) -> Key:
    return node.op, attributes_key(node.attributes)


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def structure_digest(graph: Graph) -> str:
    """A digest of what a graph computes, with all types and sizes, whatever its values are called; O(V + E)."""
    hashes = _computed(graph)
    types = [(hashes[node], [(value.dtype, value.shape) for value in node.outputs]) for node in graph.nodes]
    made = {value: (hashes[node], place) for node in graph.nodes for place, value in enumerate(node.outputs)}
    ends = [made.get(value) or leaf_key(value) for value in graph.outputs]
    inputs = [(value.name, value.dtype, value.shape) for value in graph.inputs]
    return _hash(inputs, sorted(map(repr, types)), ends)
