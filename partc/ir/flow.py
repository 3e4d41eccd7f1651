"""The flow of activations: the values that every device can make itself, and an order that keeps cuts narrow.

| word | a node is it if everything behind it, transitively, is |
| --- | --- |
| *free* | step inputs, constants and at most 64 KiB of weights; or weights and constants alone |
| *light* | inputs, constants and free values, but no parameter (an attention mask, expanded) |
| *ambient* | it is made once and read by layer after layer: see `activations` |

Free values are recomputed on every device that needs them, the others are sent once to each; only values
that are none of these count as activations in the width of a cut.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from itertools import accumulate, pairwise

from partc.ir.effects import is_buffer, is_random
from partc.ir.graph import Constant, Graph, Input, Node, State, Value, Weight
from partc.ir.once import common_nodes, once_nodes
from partc.ir.privacy import is_product

FREE_WEIGHT_BYTES = 64 * 1024
"""Weights that may stand behind a free node: enough for frequencies, too few for a table of positions."""
_FIRST = -2
"""Begin of the keys of leading nodes in a schedule: before all others."""
AMBIENT_SPAN, AMBIENT_GAP = 0.5, 0.4
"""An ambient value lives through this part of the graph; this part of its life may pass without a reader."""
AMBIENT_LAYERS, AMBIENT_LAYER = 3, 8
"""So many times at least so many nodes lie between two readers of an ambient value."""


def free_nodes(graph: Graph) -> set[Node]:
    """Nodes that every device can compute for itself instead of being sent their values.

    A graph of which that is true altogether has work to divide all the same: then no node is free.
    O(V + E) times the few weights behind a free node.
    """
    weights: dict[Node, frozenset[Weight]] = {}
    stepping: set[Node] = set()
    for node in graph.nodes:
        if is_random(node) or not all(_may_be_free(v, weights) for v in node.operands):
            continue
        makers = _makers(node)
        behind = frozenset(v for v in node.operands if isinstance(v, Weight)).union(
            *(weights[m] for m in makers)
        )
        steps = any(isinstance(v, Input) for v in node.operands) or any(m in stepping for m in makers)
        if steps and sum(weight.bytes({}) for weight in behind) > FREE_WEIGHT_BYTES:
            continue
        weights[node] = behind
        if steps:
            stepping.add(node)
    return set(weights) if len(weights) < len(graph.nodes) else set()


def _may_be_free(value: Value, free: dict[Node, frozenset[Weight]]) -> bool:
    if isinstance(value, Input):
        return value.is_step
    if value.producer is not None:
        return value.producer in free
    return not isinstance(value, State)


def _makers(node: Node) -> list[Node]:
    return [value.producer for value in node.operands if value.producer is not None]


def light_nodes(graph: Graph, free: Set[Node]) -> set[Node]:
    """Nodes that merely dress up what the request brings; free nodes are not among them; O(V + E).

    A graph of which that is true altogether (its weights are made when it runs) has work to divide all the same: then
    no node is light.
    """
    light: set[Node] = set()
    for node in graph.nodes:
        plain = not any(_is_parameter(value) for value in node.operands)
        if plain and node not in free and all(maker in light or maker in free for maker in _makers(node)):
            light.add(node)
    return light if len(light) + len(free) < len(graph.nodes) else set()


def _is_parameter(value: Value) -> bool:
    """Whether a leaf was learnt or is remembered; of constants, those that are at least matrices."""
    if isinstance(value, Constant):
        return sum(dim != 1 for dim in value.shape or ()) > 1
    return isinstance(value, Weight | State)


def schedule(graph: Graph, free: Set[Node]) -> list[Node]:
    """The nodes that are not free, in an order in which few values are alive at once.

    Depth first from the deepest output, so that a node stands right before the first node that needs it: what
    was exported early but is used late does not lie across every cut between. Branches that end elsewhere
    (another output, a state that nobody reads back) follow the last node that they depend on. What is computed once a
    request and read by several layers (an encoder) comes first; before it only what `leading_nodes` says.
    Deterministic: ties go by operand order, then by the order of the graph. O(V + E) plus sorting.
    """
    depth = _depths(graph, free)
    ends = [*_ends(common_nodes(graph) & depth.keys(), depth), *_ends(depth.keys(), depth)]
    keys: dict[Node, tuple[int, ...]] = {}
    skip = set(free)
    for number, end in enumerate(_ends(leading_nodes(graph, free), depth)):
        branch = behind(end, skip)
        skip.update(branch)
        keys.update((node, (_FIRST, number, place)) for place, node in enumerate(branch))
    for number, end in enumerate(ends):
        branch = behind(end, skip)
        skip.update(branch)
        # The deepest output makes the trunk; every other branch hangs behind the last node that it reads.
        anchors = [keys[maker] for node in branch for maker in _makers(node) if maker in keys]
        prefix = (*max(anchors, default=(-1,)), number) if number else ()
        keys.update((node, (*prefix, place)) for place, node in enumerate(branch))
    return sorted(keys, key=lambda node: keys[node])


def _ends(nodes: Set[Node], depth: Mapping[Node, int]) -> list[Node]:
    """Those that none of the others reads, the deepest first; ties go by the order of the graph, as in `depth`."""
    read = {maker for node in nodes for maker in _makers(node)}
    ends = [node for node in depth if node in nodes and node not in read]
    return sorted(ends, key=lambda node: -depth[node])


def leading_nodes(graph: Graph, free: Set[Node]) -> set[Node]:
    """What a step computes before it meets what its request computes once, where that is mere looking up; O(V + E).

    The embeddings of tokens among which a picture goes: they stand before the encoder of the picture, where the tokens
    are, and pass it by. A decoder that multiplies with its weights, however they are made, before it looks at its
    encoder's output has none.
    """
    once = once_nodes(graph)
    if not once:
        return set()
    follows: set[Node] = set()
    learnt: set[Value] = set()
    for node in graph.nodes:
        if node in once or any(maker in once or maker in follows for maker in _makers(node)):
            follows.add(node)
        if all(isinstance(value, Weight | Constant) or value in learnt for value in node.operands):
            learnt.update(node.outputs)
    lead = {node for node in graph.nodes if node not in follows and node not in free}
    return set() if any(is_product(node, learnt) for node in lead) else lead


def _depths(graph: Graph, free: Set[Node]) -> dict[Node, int]:
    """Length of the longest path to every node that is not free, in the order of the graph."""
    depth: dict[Node, int] = {}
    for node in graph.nodes:
        if node not in free:
            depth[node] = 1 + max((depth[maker] for maker in _makers(node) if maker in depth), default=0)
    return depth


def behind(end: Node, skip: Container[Node]) -> list[Node]:
    """The nodes that `end` needs, and `end`, except `skip` and what it alone needs; depth-first post-order."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(end, False)]
    while stack:
        node, complete = stack.pop()
        if complete:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [
                (maker, False) for maker in reversed(_makers(node)) if maker not in seen and maker not in skip
            ]
    return order


def needed(nodes: Iterable[Node], among: Set[Node]) -> set[Node]:
    """The nodes of `among` that `nodes` depend on through nodes of `among` alone; O(edges seen)."""
    found: set[Node] = set()
    stack = [maker for node in nodes for maker in _makers(node)]
    while stack:
        node = stack.pop()
        if node in among and node not in found:
            found.add(node)
            stack += _makers(node)
    return found


def activations(graph: Graph, order: Sequence[Node], ignored: Set[Node]) -> dict[Value, tuple[int, int]]:
    """The values that count when something is cut, each with the places that make it and read it last.

    Neither graph inputs and leaves count, nor values of `ignored` nodes, nor ambient ones, nor what an encoder
    leaves to the layers of a decoder, which goes to each of them once, nor what passes an encoder by, which goes
    straight to its reader. O(V + E).
    """
    place = {node: i for i, node in enumerate(order)}
    common = common_nodes(graph)
    behind_common = 1 + max((place[node] for node in common if node in place), default=-1)
    reads: dict[Value, list[int]] = {}
    for i, node in enumerate(order):
        for value in node.operands:
            if value.producer in common and node not in common:
                continue
            if value.producer in place and value.producer not in ignored:
                made = place[value.producer]
                passes_by = made < behind_common <= i and value.producer not in common
                reads.setdefault(value, [max(made, behind_common) if passes_by else made]).append(i)
    length = len(order) - len(common)
    return {v: (at[0], at[-1]) for v, at in reads.items() if is_buffer(v) or not _is_ambient(at, length)}


def _is_ambient(places: Sequence[int], length: int) -> bool:
    """Whether a value, made and read at these places, is an input that most layers share.

    It lives through half of the graph and is read again and again on the way, such as the output of an
    encoder or Gemma 3n's inputs of every layer. A residual is read at the beginning of its life and once
    more at the end.
    """
    span = places[-1] - places[0]
    gaps = [b - a for a, b in pairwise(places)]
    layers = sum(gap >= AMBIENT_LAYER for gap in gaps)
    return span >= AMBIENT_SPAN * length and layers >= AMBIENT_LAYERS and max(gaps) <= AMBIENT_GAP * span


def widths(graph: Graph, order: Sequence[Node], ignored: Set[Node]) -> list[int]:
    """For every place in `order`: how many activations are made before it and read at or behind it."""
    steps = [0] * (len(order) + 1)
    for made, last in activations(graph, order, ignored).values():
        steps[made + 1] += 1
        steps[last + 1] -= 1
    return list(accumulate(steps[: len(order)]))
