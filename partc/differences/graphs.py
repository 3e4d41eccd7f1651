"""Two graphs, in the terms of the model: what was added, removed, rewritten, and where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from partc.differences.change import Change, changed_values, layer_of, place_text, shown
from partc.differences.matching import Matching, leaf_key, match_graphs
from partc.format.dims import Shape
from partc.format.dtypes import Array
from partc.ir.graph import Constant, Graph, ModelInfo, Module, Node, State, Value, Weight
from partc.ir.weights import print_expr

_NO_FACTS = ("folder", "name", "random", "tokenizer")
"""Fields that say where a model is from; causes are told by other means."""


def compare_modules(before: Module, after: Module) -> list[Change]:
    """What changed between two modules, the most general first; see `compare_graphs`."""
    facts = changed_values("graph", "model fact", _facts(before.info), _facts(after.info))
    found = match_graphs(before.graph, after.graph)
    named = before.info.task == after.info.task == "graph"
    return [*facts, *_compared(found, named=named), *_cuts(found, before, after)]


def compare_graphs(before: Graph, after: Graph) -> list[Change]:
    """What changed between two graphs; nodes are matched by structure (`match_graphs`), alike changes told as one."""
    return _compared(match_graphs(before, after))


def _compared(found: Matching, *, named: bool = False) -> list[Change]:
    """`named`: whether the names of outputs are the user's."""
    return [
        *_ends(found, named=named),
        *_gathered("operator removed", ((node.op, node, None, None) for node in found.removed)),
        *_gathered("operator added", ((node.op, node, None, None) for node in found.added)),
        *_gathered("operator replaced", _replaced(found)),
        *_gathered("attribute changed", _attributes(found)),
        *_gathered("operand changed", _operands(found)),
        *_gathered("type changed", _types(found)),
        *_gathered("size changed", _sizes(found)),
    ]


_Row = tuple[str, Node, str | None, str | None]
"""What changed, at which node, before and after."""


def _gathered(kind: str, rows: Iterator[_Row]) -> Iterator[Change]:
    """Rows that say the same of different layers as one change."""
    groups: dict[tuple[str, str, str | None, str | None], list[Node]] = defaultdict(list)
    for what, node, before, after in rows:
        groups[what, layer_of(node.scope)[0], before, after].append(node)
    for (what, scope, before, after), nodes in groups.items():
        where = f"{what} in {_place(scope, nodes)}"
        yield Change("graph", kind, where, before, after, len(nodes))


def _place(scope: str, nodes: Sequence[Node]) -> str:
    """The layers of nodes of one scope; without a scope the values that they make."""
    if not scope:
        return shown(", ".join(node.outputs[0].name for node in nodes)) or ""
    found = (layer_of(node.scope)[1] for node in nodes)
    return place_text(scope, [layer for layer in found if layer is not None])


def _facts(info: ModelInfo) -> dict[str, Any]:
    found = {key: value for key, value in asdict(info).items() if key not in _NO_FACTS}
    return {**found, "quantize": info.quantize.text if info.quantize else None}


def _cuts(found: Matching, before: Module, after: Module) -> Iterator[Change]:
    """Nodes of both graphs before which one of them alone is cut, or may be."""
    for kind, borders in (("cut candidate", _candidates), ("border of a sub-module", _borders)):
        ours, others = borders(before), borders(after)
        for was, now in (("yes", "no"), ("no", "yes")):
            rows = (
                (node.op, node, was, now)
                for node, other in found.pairs.items()
                if ((node in ours), (other in others)) == (was == "yes", now == "yes")
            )
            yield from _gathered(kind, rows)


def _candidates(module: Module) -> set[Node]:
    return set(module.candidates or ())


def _borders(module: Module) -> set[Node]:
    return {submodule.nodes[0] for submodule in module.submodules or () if submodule.nodes}


def _ends(found: Matching, *, named: bool) -> Iterator[Change]:
    """Inputs, outputs and states that are on one side alone, or have another type."""
    ours, others = (_inputs_and_outputs(graph, named=named) for graph in (found.before, found.after))
    yield from changed_values("graph", "end of the graph", ours, others)
    yield from changed_values("graph", "state changed", _states(found.before), _states(found.after))


def _inputs_and_outputs(graph: Graph, *, named: bool) -> dict[str, str]:
    inputs = {f"input {value.name}": _type(value) for value in graph.inputs if not value.is_step}
    outputs = {
        f"output {value.name if named else place}": _type(value) for place, value in enumerate(graph.outputs)
    }
    return {**inputs, **outputs}


def _states(graph: Graph) -> dict[str, str]:
    """Those of all layers as one."""
    return {layer_of(state.name)[0]: _type(state) for state in graph.states()}


def _replaced(found: Matching) -> Iterator[_Row]:
    for one, other in found.pairs.items():
        if one.op != other.op:
            yield one.op, one, one.op, other.op


def _attributes(found: Matching) -> Iterator[_Row]:
    for one, other in found.pairs.items():
        if one.op != other.op:
            continue
        for name in dict.fromkeys([*one.attributes, *other.attributes]):
            ours, others = (node.attributes.get(name) for node in (one, other))
            if _is_unlike(ours, others):
                yield f"{name} of {one.op}", one, *_texts(ours, others)


def _is_unlike(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) != (other.dtype, other.shape, other.tobytes())
    return _value_text(one) != _value_text(other)


def _texts(one: object, other: object) -> tuple[str | None, str | None]:
    """Two attributes as text; of arrays that look alike the first elements that differ."""
    before, after = _value_text(one), _value_text(other)
    if before != after or not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return before, after
    place = _first_unlike(one, other)
    if not place:
        return before, after
    return f"{before} with {one[place]} at {list(place)}", f"{after} with {other[place]} at {list(place)}"


def _first_unlike(one: Array, other: Array) -> tuple[int, ...]:
    """The place of the first elements that differ, of arrays of one shape; none: zeros of two signs."""
    return next((tuple(place) for place in np.argwhere(one != other).tolist()), ())


def _operands(found: Matching) -> Iterator[_Row]:
    """Operands that are something else. One that is new or gone is told as an operator, and not here."""
    for one, other in found.pairs.items():
        if one.op != other.op:
            continue
        for place in range(max(len(one.inputs), len(other.inputs))):
            ours, others = (node.inputs[place] if place < len(node.inputs) else None for node in (one, other))
            if _is_another(ours, others, found):
                what = f"operand {place} of {one.op}"
                before, after = _operand_text(ours), _operand_text(others)
                if isinstance(ours, Constant) and isinstance(others, Constant) and before == after:
                    before, after = _unlike_elements(ours, others)
                yield what, one, before, after


def _is_another(one: Value | None, other: Value | None, found: Matching) -> bool:
    if one is None or other is None:
        return one is not other
    if one.producer is None and other.producer is None:
        return leaf_key(one) != leaf_key(other)
    for value, known in ((one, found.pairs), (other, found.found)):
        if value.producer is not None and value.producer not in known:
            return False  # the producer is told to be new or gone
    return not found.same(one, other)


def _types(found: Matching) -> Iterator[_Row]:
    """Element types, where they begin to differ."""
    for one, other in found.pairs.items():
        if _inherits(one, other, found, lambda value: value.dtype):
            continue
        for ours, others in zip(one.outputs, other.outputs, strict=False):
            if ours.dtype != others.dtype:
                yield f"result of {one.op}", one, ours.dtype, others.dtype


def _sizes(found: Matching) -> Iterator[_Row]:
    """Sizes, where they begin to differ."""
    for one, other in found.pairs.items():
        if _inherits(one, other, found, lambda value: value.shape):
            continue
        for ours, others in zip(one.outputs, other.outputs, strict=False):
            if ours.shape != others.shape:
                yield f"result of {one.op}", one, _shape(ours.shape), _shape(others.shape)


def _inherits(one: Node, other: Node, found: Matching, fact: Any) -> bool:
    """Whether a fact of matched operands differs already."""
    pairs = zip(one.inputs, other.inputs, strict=False)
    return any(
        a and b and a.producer and b.producer and found.same(a, b) and fact(a) != fact(b) for a, b in pairs
    )


def _operand_text(value: Value | None) -> str | None:
    match value:
        case None:
            return None
        case Weight(source=source) if source is not None:
            return f"weight {_without_layer(print_expr(source))} {_type(value)}"
        case Constant(array=array):
            return f"constant {_value_text(array)}"
        case State(name=name):
            return f"state {_without_layer(name)}"
        case Value(producer=Node(op=op, scope=scope)):
            return f"{op} in {_without_layer(scope)}" if scope else op
        case _:
            return f"input {value.name}"


def _unlike_elements(one: Constant, other: Constant) -> tuple[str | None, str | None]:
    """The first elements that differ, of constants that look alike."""
    a, b = one.array, other.array
    if a is None or b is None or not (place := _first_unlike(a, b)):
        return _operand_text(one), _operand_text(other)
    where = f"constant {_type(one)} at {list(place)}"
    return f"{where}: {a[place]}", f"{where}: {b[place]}"


def _without_layer(text: str) -> str:
    return layer_of(text)[0]


def _value_text(value: object) -> str | None:
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        text = ", ".join(map(str, flat[:6].tolist())) + (", …" if flat.size > 6 else "")
        return f"{value.dtype}{list(value.shape)} [{text}]"
    return shown(value)


def _type(value: Value) -> str:
    return f"{value.dtype}{_shape(value.shape)}"


def _shape(shape: Shape | None) -> str:
    return "?" if shape is None else f"[{', '.join(map(str, shape))}]"


def counted(changes: Sequence[Change]) -> Mapping[str, int]:
    """Kind → how many things changed so."""
    found: dict[str, int] = defaultdict(int)
    for change in changes:
        found[change.kind] += change.count
    return found
