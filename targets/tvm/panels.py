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

Other types than float32, and keys that anything else reads, keep the plain form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partc.format.layouts import panel_shape
from partc.ir.graph import Graph, Node, State, Value
from partc.ir.operators import ATTENTION, UPDATE_STATE
from partc.ir.operators.update_state import is_cache
from targets.rewrite import Rewriter, rewrite

PANEL_ATTENTION = "tvm.Attention"
"""`(q, panels, v, position?, mask?, sinks?)`: `partc.Attention` of keys in panels; shapes of q and v as there."""
PANELS = "tvm.Panels"
"""`(k)`: keys of the step in panels."""
UPDATE_PANELS = "tvm.UpdatePanels"
"""`(panels, new, position)`: `partc.UpdateState` of a cache in panels."""
_MASKS = ("bool", "f32")


def lay_out_keys(graphs: Sequence[Graph]) -> frozenset[str]:
    """Rewrite the static graphs of one device as the table above says, in place; O(nodes).

    Returns the names of the states that lie in panels, in all of the graphs.
    """
    names = _panelled(graphs)
    for graph in graphs:
        rewrite(graph, {UPDATE_STATE.name: lambda n, r: _update(n, r, names), ATTENTION.name: _attention})
    return names


def _panelled(graphs: Iterable[Graph]) -> frozenset[str]:
    """The states whose only readers, behind their update, are attentions that take them as keys."""
    fit: set[str] = set()
    unfit: set[str] = set()
    for graph in graphs:
        readers, outputs = graph.consumers(), set(graph.outputs)
        for node in graph.nodes:
            state = node.inputs[0] if node.op == UPDATE_STATE.name else None
            if isinstance(state, State):
                full = node.outputs[0]
                fits = full not in outputs and all(_reads_keys(n, full) for n in readers.get(full, ()))
                (fit if fits and len(readers[state]) == 1 else unfit).add(state.name)
    return frozenset(fit - unfit)


def _reads_keys(node: Node, value: Value) -> bool:
    return (
        node.op == ATTENTION.name
        and node.inputs[1] is value
        and node.inputs.count(value) == 1
        and _fits(node)
    )


def _fits(node: Node) -> bool:
    """Whether there is a kernel: float32 throughout, a mask that hides or is added."""
    mask = node.inputs[4] if len(node.inputs) > 4 else None
    floats = all(value.dtype == "f32" for value in node.inputs[:3] if value is not None)
    return floats and (mask is None or mask.dtype in _MASKS)


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
