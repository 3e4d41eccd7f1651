"""Keys in panels of 16, as the attention of processors reads them.

    panels[b, h, j // 16, c, j % 16] = keys[b, h, j, c]          shape [batch, heads, ceil(keys / 16), d, 16]

The same number of 16 keys lies side by side: 16 scores of a query are sums that grow together, with no sum over lanes
at their end. A cache of keys lies so for good (`layout` of its state in build.json); keys that only their own step
sees, as those of encoders, are turned once.

| node | becomes |
| --- | --- |
| `partc.UpdateState(state, new, position)`, a cache of keys | `tvm.UpdatePanels(state, new, position)` |
| `partc.Attention(q, cache, v, …)` | `tvm.Attention(q, panels, v, …)` |
| `partc.Attention(q, k, v, …)` | `tvm.Attention(q, tvm.Panels(k), v, …)` |
| `partc.QuantizedAttention(q, cache, v, scales, scales, …)` | `tvm.QuantizedAttention`, the scales in panels too |

Queries of other types than float32, and keys that anything else reads, keep the plain form. Values lie in rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partc.format.layouts import panel_shape
from partc.ir.graph import Graph, Node, State, Value
from partc.ir.operators import ATTENTION, QUANTIZED_ATTENTION, UPDATE_STATE
from partc.ir.operators.update_state import is_cache
from partc.ir.types import HALF
from targets.rewrite import Lowering, Rewriter, rewrite

PANEL_ATTENTION = "tvm.Attention"
"""`(q, panels, v, position?, mask?, sinks?)`: `partc.Attention` of keys in panels; shapes of q and v as there."""
PANEL_QUANTIZED_ATTENTION = "tvm.QuantizedAttention"
"""`(q, panels, v, panels, panels, position?, mask?, sinks?)`: `partc.QuantizedAttention`, keys and scales in panels."""
PANELS = "tvm.Panels"
"""`(k)`: keys of the step in panels."""
UPDATE_PANELS = "tvm.UpdatePanels"
"""`(panels, new, position)`: `partc.UpdateState` of a cache in panels."""
_IN_PANELS = {ATTENTION.name: (1,), QUANTIZED_ATTENTION.name: (1, 3, 4)}
"""Operator → places of the operands that its kernel reads in panels."""
_MASK = {ATTENTION.name: 4, QUANTIZED_ATTENTION.name: 6}
"""Operator → place of the mask."""
_MASKS = ("bool", "f32")


def lay_out_keys(graphs: Sequence[Graph]) -> frozenset[str]:
    """Rewrite the static graphs of one device as the table above says, in place; O(nodes).

    Returns the names of the states that lie in panels, in all of the graphs.
    """
    names = _panelled(graphs)
    lowerings: dict[str, Lowering] = {
        UPDATE_STATE.name: lambda node, r: _update(node, r, names),
        ATTENTION.name: _attention,
        QUANTIZED_ATTENTION.name: _quantized_attention,
    }
    for graph in graphs:
        rewrite(graph, lowerings)
    return names


def _panelled(graphs: Iterable[Graph]) -> frozenset[str]:
    """The states whose only readers, behind their update, are attentions that take them in panels."""
    fit: set[str] = set()
    unfit: set[str] = set()
    for graph in graphs:
        readers, outputs = graph.consumers(), set(graph.outputs)
        for node in graph.nodes:
            state = node.inputs[0] if node.op == UPDATE_STATE.name else None
            if isinstance(state, State):
                full = node.outputs[0]
                fits = full not in outputs and all(_takes(n, full, readers) for n in readers.get(full, ()))
                (fit if fits and len(readers[state]) == 1 else unfit).add(state.name)
    return frozenset(fit - unfit)


def _takes(node: Node, value: Value, readers: Mapping[Value, list[Node]]) -> bool:
    """Whether a node takes a value in panels; all that it takes so has one reader, or one may fit without another."""
    own = [node.operand(place) for place in _IN_PANELS.get(node.op, ())]
    alone = node.op == ATTENTION.name or all(len(readers[other]) == 1 for other in own)
    return value in own and node.inputs.count(value) == 1 and alone and _fits(node)


def _fits(node: Node) -> bool:
    """Whether there is a kernel: queries of float32, a mask that hides or is added."""
    place, types = _MASK[node.op], ("f32", "i8") if node.op == QUANTIZED_ATTENTION.name else ("f32", *HALF)
    mask = node.inputs[place] if len(node.inputs) > place else None
    return (
        node.operand(0).dtype == "f32"
        and node.operand(1).dtype == node.operand(2).dtype in types
        and (mask is None or mask.dtype in _MASKS)
    )


def _update(node: Node, r: Rewriter, names: frozenset[str]) -> bool:
    state, full = node.operand(0), node.outputs[0]
    if state.name not in names:
        return False
    state.shape = full.shape = panel_shape(state.shape or ())
    r.emit(UPDATE_PANELS, node.inputs, [full], {}, node.scope)
    return True


def _attention(node: Node, r: Rewriter) -> bool:
    query, key, *others = node.inputs
    if key is None or not _fits(node) or is_cache(key):
        return False
    if key.producer is None or key.producer.op != UPDATE_PANELS:
        panels = r.value(f"{key.name}.panels", key.dtype, panel_shape(key.shape or ()))
        r.emit(PANELS, [key], [panels], {}, node.scope)
        key = panels
    r.emit(PANEL_ATTENTION, [query, key, *others], node.outputs, node.attributes, node.scope)
    return True


def _quantized_attention(node: Node, r: Rewriter) -> bool:
    made = [node.operand(place).producer for place in _IN_PANELS[node.op]]
    if not all(update is not None and update.op == UPDATE_PANELS for update in made):
        return False
    r.emit(PANEL_QUANTIZED_ATTENTION, node.inputs, node.outputs, node.attributes, node.scope)
    return True
