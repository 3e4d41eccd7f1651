"""`quantize-caches`: caches of keys and values hold 8 bits, where the model's header asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from partc.errors import ModelError
from partc.ir.edit import Names
from partc.ir.graph import Graph, Module, Node, State, Value
from partc.ir.operators import ATTENTION, QUANTIZE_ROWS, QUANTIZED_ATTENTION, UPDATE_STATE
from partc.ir.quantization import NONE
from partc.pipeline.contract import Context, Pass

_CACHES = (1, 2)
"""Places of keys and values among the operands of an attention."""


@dataclass(frozen=True)
class QuantizeCaches(Pass):
    """Round what attention keeps to 8 bits, with a scale for every token and head."""

    name: ClassVar[str] = "quantize-caches"
    requires: ClassVar[str | None] = "sized"
    ensures: ClassVar[str | None] = "sized"

    def apply(self, module: Module, context: Context) -> bool:
        """Rewrite the graph as `module.info.quantize` asks for.

        Raises:
            ModelError: the graph has no cache of keys and values.
        """
        wanted = module.info.quantize
        if wanted is None or wanted.cache == NONE:
            return False
        changed = quantize_caches(module.graph) > 0
        if not any(node.op == QUANTIZED_ATTENTION.name for node in module.graph.nodes):
            raise ModelError(
                "there is no cache to quantise: no attention over keys and values of earlier steps",
                where=f"graph {module.graph.name}",
                hint="remove `cache: int8` from `quantize` in model.yaml",
            )
        return changed


def quantize_caches(graph: Graph) -> int:
    """Quantise in place; the number of attentions that were; O(nodes).

    | node | becomes |
    | --- | --- |
    | `full = UpdateState(state, new, position)` | `data, scales = QuantizeRows(new)`, an update of a state each |
    | `Attention(q, key, value, …)` | `QuantizedAttention(q, key, value, key scales, value scales, …)` |

    A cache that anything but such attentions reads keeps its precision, and so does the other cache of its attention.
    """
    chosen = _chosen(graph)
    updates = {node.operand(place).producer for node in chosen for place in _CACHES}
    writer, nodes = _Writer(graph), list[Node]()
    for node in graph.nodes:
        if node in updates:
            nodes.extend(writer.update(node))
        else:
            nodes.append(writer.attention(node) if node in chosen else node)
    graph.nodes = nodes
    return len(chosen)


def _chosen(graph: Graph) -> set[Node]:
    """The attentions whose keys and values lie in caches that only attentions of this kind read."""
    readers, outputs = graph.consumers(), set(graph.outputs)

    def is_cache(value: Value) -> bool:
        update = value.producer
        state = update.inputs[0] if update is not None and update.op == UPDATE_STATE.name else None
        return isinstance(state, State) and readers[state] == [update] and outputs.isdisjoint((state, value))

    found = {node for node in graph.nodes if node.op == ATTENTION.name}
    chosen = {node for node in found if all(is_cache(node.operand(place)) for place in _CACHES)}
    while lost := {
        node for node in chosen if any(not chosen.issuperset(readers[node.operand(p)]) for p in _CACHES)
    }:
        chosen -= lost
    return chosen


class _Writer:
    """Writes the nodes that take the place of others."""

    def __init__(self, graph: Graph) -> None:
        self._names = Names(graph)
        self._caches: dict[Value, tuple[Value, Value]] = {}
        """The old contents of a cache → data and scales."""

    def update(self, node: Node) -> Iterator[Node]:
        """The nodes for an update of a cache."""
        state, new, position = (node.operand(place) for place in range(3))
        full = node.outputs[0]
        rows = self._pair(new, self._names.fresh(f"{new.name}.int8"))
        self._caches[full] = self._pair(full, full.name)
        yield Node(QUANTIZE_ROWS.name, [new], list(rows), {}, node.scope)
        data = State(state.name, "i8", state.shape)
        scales = State(self._names.fresh(f"{state.name}.scales"), state.dtype, _one_each(state))
        for own, row, result in zip((data, scales), rows, self._caches[full], strict=True):
            yield Node(UPDATE_STATE.name, [own, row, position], [result], {}, node.scope)

    def attention(self, node: Node) -> Node:
        """The node for an attention."""
        query, key, value, *others = node.inputs
        (keys, key_scales), (values, value_scales) = (self._caches[v] for v in (key, value) if v is not None)
        operands = [query, keys, values, key_scales, value_scales, *others]
        return Node(QUANTIZED_ATTENTION.name, operands, node.outputs, node.attributes, node.scope)

    def _pair(self, value: Value, name: str) -> tuple[Value, Value]:
        """Data and scales in the place of a value."""
        data = replace(value, name=name, dtype="i8", producer=None)
        return data, Value(self._names.fresh(f"{value.name}.scales"), value.dtype, _one_each(value))


def _one_each(value: Value) -> tuple[int | str, ...]:
    """The shape of a scale for every row of a value."""
    return (*(value.shape or ())[:-1], 1)
