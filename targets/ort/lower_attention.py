"""partc.Attention → the fastest operator that computes it exactly.

| attention | becomes |
| --- | --- |
| with sinks | MatMul, Softmax, MatMul |
| any other | ONNX Attention with an explicit mask |

What com.microsoft.GroupQueryAttention can express has become that before (`targets.ort.fusions`), unless it is turned
off. Attention over a cache reads the valid keys alone (a slice up to the largest position), not the whole buffer.
"""

from __future__ import annotations

from typing import cast

from partc.errors import InternalError
from partc.ir.effects import updates
from partc.ir.graph import Attribute, Node, Value
from partc.ir.operators.attention import rule_of
from targets.ort.layout import SWAP, from_hidden, to_hidden
from targets.ort.masks import combine, visible_keys
from targets.ort.plain_attention import write_plain_attention
from targets.ort.steps import axis_length, total_keys
from targets.rewrite import Rewriter

_ATTENTION_OPSET = 23


def lower_attention(node: Node, r: Rewriter) -> bool:
    """Lower `Attention(q, k, v, position, [mask], [sinks]) -> out`, all in [batch, heads, rows, d]."""
    if r.graph.opset < _ATTENTION_OPSET:
        raise InternalError(
            f"Attention needs opset {_ATTENTION_OPSET}, the graph has {r.graph.opset}",
            where=node.place,
        )
    query, key, value, position, mask, sinks = [*node.inputs, None, None, None][:6]
    if query is None or key is None or value is None:
        raise InternalError("Attention needs query, key and value", where=node.place)
    rows = axis_length(r, query, 2)
    keys = axis_length(r, key, 2)
    if _is_cache(key) and position is not None:
        keys = total_keys(r, position, rows)
        key, value = (_valid_rows(r, buffer, keys, axis=2) for buffer in (key, value))
        mask = _valid_rows(r, mask, keys, axis=3) if mask is not None and _spans_keys(mask) else mask
    seen = _mask(node, r, position, mask, rows, keys)
    if sinks is not None:
        write_plain_attention(r, node, query, key, value, seen, sinks)
    elif all(_is_swapped(operand) for operand in (query, key, value)):
        _write_flat_attention(r, node, seen)
    else:
        r.emit("Attention", [query, key, value, seen], node.outputs, _numbers(node), node.scope)
    return True


def _numbers(node: Node) -> dict[str, Attribute]:
    rule = rule_of(node)
    return {"scale": rule.scale, "softcap": rule.softcap}


def _is_swapped(value: Value) -> bool:
    maker = value.producer
    return maker is not None and maker.op == "Transpose" and maker.attributes.get("perm") == SWAP


def _write_flat_attention(r: Rewriter, node: Node, mask: Value | None) -> None:
    """Attention over [batch, rows, heads × d], where the model has just swapped from there."""
    query, key, value = (cast("Value", operand) for operand in node.inputs[:3])
    output = node.outputs[0]
    heads, kv_heads = (cast("int", (operand.shape or ())[1]) for operand in (query, key))
    batch, _, rows, size = output.shape or ()
    hidden = r.value(f"{node.name}.hidden", output.dtype, (batch, rows, heads * cast("int", size)))
    numbers = {**_numbers(node), "q_num_heads": heads, "kv_num_heads": kv_heads}
    r.emit(
        "Attention", [*(to_hidden(r, v) for v in (query, key, value)), mask], [hidden], numbers, node.scope
    )
    from_hidden(r, hidden, output, heads)


def _is_cache(key: Value) -> bool:
    return key.producer is not None and key in updates(key.producer).values()


def _spans_keys(mask: Value) -> bool:
    return mask.shape is None or mask.shape[-1] != 1


def _valid_rows(r: Rewriter, buffer: Value, stop: Value, axis: int) -> Value:
    """The first `stop` entries of `buffer` along `axis`; attentions that share a cache share the slice."""

    def make() -> Value:
        inputs = [buffer, r.integers(0), stop, r.integers(axis)]
        shape = None if buffer.shape is None else (*buffer.shape[:axis], stop.name, *buffer.shape[axis + 1 :])
        return r.op("Slice", inputs, buffer.dtype, shape, f"{buffer.name}.valid")

    return r.once(("valid", buffer, stop), make)


def _for_all_rows(r: Rewriter, mask: Value, rows: Value) -> Value:
    """The mask with a row a query: onnxruntime's Attention does not broadcast that axis."""
    if mask.shape is not None and mask.shape[2] != 1:
        return mask
    one = r.integers(1)

    def make() -> Value:
        target = r.op("Concat", [one, one, rows, one], "i64", (4,), "mask_shape", axis=0)
        return r.op("Expand", [mask, target], mask.dtype, None, f"{mask.name}.rows")

    return r.once(("rows", mask, rows), make)


def _mask(
    node: Node, r: Rewriter, position: Value | None, mask: Value | None, rows: Value, keys: Value
) -> Value | None:
    rule = rule_of(node).visibility
    if not rule.hides:
        return None if mask is None else _for_all_rows(r, mask, rows)
    visible = visible_keys(r, rule, position, rows, keys)
    return visible if mask is None else combine(r, visible, mask)
