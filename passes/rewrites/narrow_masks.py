"""Masks of attentions in their shortest form: without axes that only repeat, and as booleans where they only hide."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from partc.format.dims import Dim, Shape
from partc.ir.graph import Constant, Graph, Node, Value
from partc.ir.operators import ATTENTION
from partc.ir.operators.attention import MASK, mask_of

_ELEMENTWISE = frozenset({"Where", "Add"})


def narrow_masks(graph: Graph) -> bool:
    """Shorten the masks that attentions alone read; True if anything changed; O(edges).

    The `Expand` of an operand of a mask is left out: a mask over a source, of which every row of the step sees the
    same, is then the same in all steps. `Where(seen, 0, lowest)` is `seen`.
    """
    changed = False
    readers = graph.consumers()
    masks = {_mask(node) for node in graph.nodes} - {None, *graph.outputs}
    for mask in masks:
        if mask is None or any(_mask(node) is not mask for node in readers[mask]):
            continue
        changed |= _narrow(mask)
        seen = _seen(mask)
        for node in readers[mask] if seen is not None else ():
            node.inputs[MASK] = seen
            changed = True
    return changed


def _mask(node: Node) -> Value | None:
    return mask_of(node) if node.op == ATTENTION.name else None


def _narrow(mask: Value) -> bool:
    node, before = mask.producer, mask.shape
    if node is None or node.op not in _ELEMENTWISE:
        return False
    for place, value in enumerate(node.inputs):
        if value is None or value.producer is None or value.producer.op != "Expand":
            continue
        inputs = [*node.inputs[:place], value.producer.inputs[0], *node.inputs[place + 1 :]]
        shape = _broadcast([None if one is None else one.shape for one in inputs])
        if shape is not None and before is not None and len(shape) == len(before):
            node.inputs, mask.shape, mask.origin = inputs, shape, None
    return mask.shape != before


def _seen(mask: Value) -> Value | None:
    """The booleans that a mask is made of which adds nothing where they are true, and hides elsewhere."""
    node = mask.producer
    if node is None or node.op != "Where":
        return None
    seen, shown, hidden = node.inputs
    if seen is None or seen.shape != mask.shape or not isinstance(hidden, Constant) or hidden.array is None:
        return None
    array = hidden.array
    hides = array.dtype.kind == "f" and float(np.max(array)) <= float(np.finfo(array.dtype.name).min)
    shows = isinstance(shown, Constant) and shown.array is not None and not np.any(shown.array)
    return seen if hides and shows else None


def _broadcast(shapes: list[Shape | None]) -> Shape | None:
    """The shape of operands together; None where sizes of an axis cannot be told to be the same."""
    if None in shapes:
        return None
    found: list[Dim] = []
    for dims in zip_longest(*(reversed(shape or ()) for shape in shapes), fillvalue=1):
        sizes = {dim for dim in dims if dim != 1}
        if len(sizes) > 1:
            return None
        found.append(sizes.pop() if sizes else 1)
    return tuple(reversed(found))
