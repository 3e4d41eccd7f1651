"""`partc.UpdateState`: new rows into a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partc.ir.graph import Node, State, Value
from partc.ir.operators.operator import Operator, Signature, StateWrite, Tensor
from partc.ir.weights import Array
from partc.ir.workload import Step


def is_cache(value: Value) -> bool:
    """Whether a value is all rows of a cache, of which a step uses those that are valid."""
    return isinstance(value, State) or (value.producer is not None and value.producer.op == UPDATE_STATE.name)


def _flops(node: Node, step: Step) -> int:
    """None."""
    return 0


def _moved_bytes(node: Node, step: Step) -> int:
    """The new rows, read and written, however long the cache is."""
    return 2 * node.operand(1).bytes(step.sizes)


def _scratch_bytes(node: Node, step: Step) -> int:
    """None: the state is changed in place."""
    return 0


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    state, new, position = operands
    assert state is not None
    assert new is not None
    assert position is not None
    full = state.copy()
    for b, start in enumerate(position.astype(int)):
        room = full[b, :, start : start + new.shape[2]]
        room[:] = new[b, :, : room.shape[1]]
    return [full]


UPDATE_STATE = Operator(
    name="partc.UpdateState",
    summary="Writes the rows of this step into a cache, behind the rows that are valid.",
    signatures=(
        Signature(
            operands=(
                Tensor("state", "C", "batch, heads, max_sequence, d", "the cache"),
                Tensor("new", "C", "batch, heads, rows, d", "the rows of this step"),
                Tensor("position", "i64", "batch", "valid rows of every sequence before this step"),
            ),
            results=(Tensor("full", "C", "batch, heads, max_sequence, d", "the new contents of the cache"),),
        ),
    ),
    attributes=(),
    formula="""\
full[b, h, position[b] + s] = new[b, h, s]     for every row s that lies within max_sequence
full[b, h, j]               = state[b, h, j]   for all other rows j""",
    writes=(StateWrite(operand=0, result=0),),
    flops=_flops,
    moved_bytes=_moved_bytes,
    scratch_bytes=_scratch_bytes,
    reference=_reference,
)
