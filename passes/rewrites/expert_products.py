"""Products with experts that lie in one tensor: what a mixture of experts is once it is traced.

```
picked[n, …] = GatherND(experts[e, …], chosen[n, 1])
y = MatMul(picked[n, outputs, inputs], x[n, inputs, 1])   or   MatMul(x[n, 1, inputs], picked[n, inputs, outputs])
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from partc.ir.graph import Graph, Node, Value, Weight
from partc.ir.match import Readers, made_by
from partc.ir.weights import ELEMENTWISE, Join, Step, WeightExpr
from passes.rewrites.fold_weights import FLOATS, append


@dataclass(frozen=True)
class ExpertProduct:
    """One such product."""

    x: Value
    """[n, inputs]."""
    chosen: Value
    """[n], the expert of each row."""
    experts: Weight
    """[e, outputs, inputs], or with the last two in the other order where it is `turned`."""
    turned: bool
    axis: int
    """The axis of size 1 of the result, which `y[n, outputs]` does not have."""


def expert_products(graph: Graph) -> Mapping[Node, ExpertProduct]:
    """Node of the product → what it multiplies; O(nodes)."""
    readers = Readers(graph)
    found = {node: _product(node, readers) for node in graph.nodes if node.op == "MatMul"}
    return {node: product for node, product in found.items() if product is not None}


def _product(node: Node, readers: Readers) -> ExpertProduct | None:
    for side in (0, 1):
        picks = made_by(node.inputs[side], "GatherND")
        lifted = made_by(node.inputs[1 - side], "Unsqueeze")
        if picks is None or lifted is None or not readers.only_inside([picks], node):
            continue
        experts, listed = picks.inputs[0], made_by(picks.inputs[1], "Unsqueeze")
        chosen, x = listed.inputs[0] if listed else None, lifted.inputs[0]
        if not _are_experts(experts) or picks.attributes.get("batch_dims") or _rank(chosen) != 1:
            continue
        axis = 2 - side
        if _rank(x) == 2 and (lifted.outputs[0].shape or ())[axis] == 1:
            assert isinstance(experts, Weight)
            assert chosen is not None
            assert x is not None
            return ExpertProduct(x, chosen, experts, bool(side), axis)
    return None


def _are_experts(value: Value | None) -> bool:
    return isinstance(value, Weight) and value.dtype in FLOATS and _rank(value) == 3


def _rank(value: Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def expert(experts: Weight, index: int) -> WeightExpr:
    """The matrix of one expert; where experts are stacked only while they are read, its own tensors alone."""
    assert experts.source is not None
    alone = _alone(experts.source, index)
    if alone is not None:
        return alone
    sizes = (int(size) for size in (experts.shape or ())[1:])
    return append(append(experts.source, "slice", 0, index, index + 1), "reshape", *sizes)


def _alone(source: WeightExpr, index: int) -> WeightExpr | None:
    """`source[index]` without a slice, None where it cannot be had."""
    match source:
        case Join(op="stack", argument=0, parts=parts):
            return parts[index]
        case Join(op="concat", argument=axis, parts=parts) if axis > 0:
            chosen = [_alone(part, index) for part in parts]
            known = tuple(part for part in chosen if part is not None)
            return Join("concat", axis - 1, known) if len(known) == len(parts) else None
        case Step(op=op, arguments=arguments, source=inner) if op in ELEMENTWISE:
            part = _alone(inner, index)
            return None if part is None else Step(op, arguments, part)
        case Step(op="transpose", arguments=(0, *axes), source=inner):
            part = _alone(inner, index)
            return None if part is None else append(part, "transpose", *(int(axis) - 1 for axis in axes))
        case _:
            return None
