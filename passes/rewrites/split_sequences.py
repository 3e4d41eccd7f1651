"""Lists of tensors, which the exporter makes of `chunk` and `split`, become plain `Split` nodes."""

from __future__ import annotations

import numpy as np

from partc.ir.edit import Names
from partc.ir.graph import Graph, Node, Value
from partc.ir.sizes import Inferred
from passes.rewrites.fold_constants import constant


def split_sequences(graph: Graph, inferred: Inferred) -> bool:
    """Make `SplitToSequence` with `SequenceAt` at constant indices a `Split`; True if any was; O(nodes)."""
    lists = [node for node in graph.nodes if node.op == "SplitToSequence"]
    if not lists:
        return False
    readers, names = graph.consumers(), Names(graph)
    dead: set[Node] = set()
    for node in lists:
        items = readers.get(node.outputs[0], [])
        sizes, indices = _sizes(node, inferred), [_index(item, inferred) for item in items]
        if (
            sizes is None
            or node.outputs[0] in graph.outputs
            or None in indices
            or len(set(indices)) != len(items)
        ):
            continue
        chosen = {range(len(sizes))[i]: item for i, item in zip(indices, items, strict=True) if i is not None}
        _become_split(node, sizes, chosen, names)
        dead.update(items)
    graph.nodes = [node for node in graph.nodes if node not in dead]
    return bool(dead)


def _become_split(node: Node, sizes: list[int], chosen: dict[int, Node], names: Names) -> None:
    node.op, old = "Split", node.outputs[0].name
    node.attributes = {"axis": node.attributes.get("axis", 0)}
    node.inputs = [node.inputs[0], constant(names.fresh(f"{old}.sizes"), np.array(sizes, np.int64))]
    node.outputs = [
        chosen[i].outputs[0] if i in chosen else Value(names.fresh(f"{old}.{i}")) for i in range(len(sizes))
    ]
    for output in node.outputs:
        output.producer = node


def _index(item: Node, inferred: Inferred) -> int | None:
    if item.op != "SequenceAt" or item.inputs[1] is None:
        return None
    index = inferred.constant(item.inputs[1])
    return None if index is None else int(index.reshape(-1)[0])


def _sizes(node: Node, inferred: Inferred) -> list[int] | None:
    """Sizes of the parts: given as a list, or by the size of all but the last, which asks for that of all."""
    shape = inferred.shape(node.inputs[0]) if node.inputs[0] else None
    given = inferred.constant(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    axis = int(node.attributes.get("axis", 0))  # type: ignore[arg-type]
    total = shape[axis] if shape else None
    if given is not None and given.shape:
        return [int(size) for size in given]
    if given is None or not isinstance(total, int):
        return None
    step = int(given)
    return [min(step, total - start) for start in range(0, total, step)]
