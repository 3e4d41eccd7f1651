"""partc.Attention with its own cache → com.microsoft.GroupQueryAttention, which updates the cache itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from partc.ir.graph import Graph, Node, State, Value
from partc.ir.operators import ATTENTION, UPDATE_STATE
from partc.ir.operators.attention import rule_of
from targets.ort.layout import from_hidden, to_hidden
from targets.ort.steps import axis_length, key_ends, total_keys
from targets.rewrite import Rewriter, rewrite

Users = Mapping[Value, Sequence[Node]]
GROUPED = "com.microsoft.GroupQueryAttention"
_HEAD_SINK = 11
"""Place of the operand `head_sink`."""
_HEAD_UNIT = 8
"""The operator wants a head size that is a multiple of this."""


def fuse_grouped_attention(graph: Graph) -> int:
    """Produce GroupQueryAttention, which updates its cache itself; returns how many; O(nodes)."""
    users = graph.consumers()
    grouped = {node for node in graph.nodes if _is_grouped(node, users)}
    updates = {cast("Value", operand).producer for node in grouped for operand in node.inputs[1:3]}

    def attention(node: Node, r: Rewriter) -> bool:
        if node in grouped:
            _write(node, r)
        return node in grouped

    rewrite(graph, {ATTENTION.name: attention, UPDATE_STATE.name: lambda node, r: node in updates})
    return len(grouped)


def _is_grouped(node: Node, users: Users) -> bool:
    """Whether GroupQueryAttention can express this attention.

    The operator is causal, takes keys and values of one size that is a
    multiple of 8, and owns its cache: nothing else may read or write it.
    """
    if node.op != ATTENTION.name or len(node.inputs) < 4:
        return False
    query, key, value, position, mask = [*node.inputs, None][:5]
    rule = rule_of(node).visibility
    if mask is not None or not rule.causal or rule.chunk:
        return False
    if not (_is_own_update(key, position, users) and _is_own_update(value, position, users)):
        return False
    sizes = {operand.shape[3] if operand and operand.shape else None for operand in (query, key, value)}
    return (
        len(sizes) == 1
        and key is not value
        and all(isinstance(s, int) and s % _HEAD_UNIT == 0 for s in sizes)
    )


def _is_own_update(full: Value | None, position: Value | None, users: Users) -> bool:
    update = full.producer if full is not None else None
    if full is None or update is None or update.op != UPDATE_STATE.name:
        return False
    state = update.inputs[0]
    is_alone = len(users.get(full, [])) == 1 and isinstance(state, State) and len(users.get(state, [])) == 1
    return is_alone and update.inputs[2] is position


def _write(node: Node, r: Rewriter) -> None:
    """Write GroupQueryAttention in place of an attention and the two updates before it.

    Contract of the operator (onnxruntime 1.31, CPU provider), found by numbers: query, key, value [batch,
    sequence, heads × d]; past_key and past_value bound to one buffer [batch, kv_heads, max_sequence, d]
    with present_key and present_value; seqlens_k i32[batch] = valid keys - 1; total_sequence_length i32[] =
    the largest number of valid keys. Query i sees key j iff i - local_window_size < j <= i, as in our
    `window`. A step with past keys and more than one row needs batch 1.
    """
    query, key, value, position = (cast("Value", operand) for operand in node.inputs[:4])
    updates = [cast("Node", operand.producer) for operand in (key, value)]
    states = [cast("State", update.inputs[0]) for update in updates]
    sequence = axis_length(r, query, 2)
    for update, state in zip(updates, states, strict=True):
        r.name_state_output(update.outputs[0], state)
    news = [to_hidden(r, cast("Value", update.inputs[1])) for update in updates]
    lengths = [_last_keys(r, position, sequence), _total(r, position, sequence)]
    inputs: list[Value | None] = [to_hidden(r, query), *news, *states, *lengths]
    if len(node.inputs) > 5 and node.inputs[5] is not None:
        inputs += [None] * (_HEAD_SINK - len(inputs)) + [node.inputs[5]]
    shape, heads = query.shape or (), cast("int", (query.shape or ())[1])
    hidden = r.value(f"{node.name}.hidden", query.dtype, (shape[0], shape[2], heads * cast("int", shape[3])))
    rule = rule_of(node)
    outputs = [hidden, *(update.outputs[0] for update in updates)]
    r.emit(GROUPED, inputs, outputs, {
        "num_heads": heads,
        "kv_num_heads": cast("int", (key.shape or ())[1]),
        "scale": rule.scale,
        "local_window_size": rule.visibility.window or -1,
        "softcap": rule.softcap,
        "do_rotary": 0,
    }, node.scope)  # fmt: skip
    from_hidden(r, hidden, node.outputs[0], heads)


def _last_keys(r: Rewriter, position: Value, sequence: Value) -> Value:
    def make() -> Value:
        last = r.op(
            "Sub", [key_ends(r, position, sequence), r.integer(1)], "i64", position.shape, "last_keys_i64"
        )
        return r.op("Cast", [last], "i32", position.shape, "last_keys", to=6)

    return r.once(("last_keys", position, sequence), make)


def _total(r: Rewriter, position: Value, sequence: Value) -> Value:
    def make() -> Value:
        scalar = r.op("Squeeze", [total_keys(r, position, sequence)], "i64", (), "total_i64")
        return r.op("Cast", [scalar], "i32", (), "total_i32", to=6)

    return r.once(("total_i32", position, sequence), make)
