"""Calls of kernels for steps that requests share, made of those of two functions of a kernel plan.

The function of B sequences multiplies the rows of all with weights that it reads once. It has its states one behind the
other, but requests have theirs in slots of their own. So its kernels that take states are called once for each row
instead, in their order, as the function of one sequence calls them: no state is moved or copied, any slots may share a
step, and attention is that of a request alone, bit for bit. Rows of one slot are consecutive tokens: what lies behind
the position of a row is masked in it.

Both functions come from one graph, so that their calls correspond, one by one.
"""

from __future__ import annotations

from partc.format.kernel_plan import KernelCall, KernelFunction, KernelPlan, KernelTensor, Place
from partc.format.layouts import ALIGNMENT
from partc.runtime.engines.plan_frame import Call, Operand, operands_of


def shared_calls(
    plan: KernelPlan, one: KernelFunction, many: KernelFunction, states: range, count: int
) -> list[Call] | None:
    """The calls of a step of `count` requests; O(calls × count).

    Args:
        plan: has both functions.
        one: of one sequence and one token.
        many: of `count` sequences and one token.
        states: the numbers of the parameters that are states.
        count: requests.

    Returns:
        None where the calls of the two do not correspond, or a row would lie where kernels do not take it.
    """
    gives_states = any(_is_state(output.place, states) for output in many.outputs)
    if len(one.calls) != len(many.calls) or gives_states:
        return None
    calls: list[Call] = []
    for single, wide in zip(one.calls, many.calls, strict=True):
        if not any(_is_state(place, states) for place in (*single.arguments, *wide.arguments)):
            calls.append((wide.kernel, operands_of(plan, wide)))
            continue
        for row in range(count):
            operands = _of_row(plan, single, wide, states, row, count)
            if operands is None:
                return None
            calls.append((single.kernel, operands))
    return calls


def _is_state(place: Place, states: range) -> bool:
    return place.room == "parameter" and place.at in states


def _of_row(
    plan: KernelPlan, single: KernelCall, wide: KernelCall, states: range, row: int, count: int
) -> list[Operand] | None:
    """The operands of the kernel of one sequence, for a row of the many."""
    ones, manies = plan.kernels[single.kernel].parameters, plan.kernels[wide.kernel].parameters
    if len(ones) != len(manies):
        return None
    found = []
    for place, kind, other_place, other in zip(single.arguments, ones, wide.arguments, manies, strict=True):
        own = KernelTensor(kind.dtype, kind.shape)
        if _is_state(place, states) or _is_state(other_place, states):
            if place != other_place:
                return None
            found.append(Operand(place, own, row=row))
            continue
        offset = _offset(kind, other, row, count)
        if offset is None:
            return None
        found.append(Operand(other_place, own, offset))
    return found


def _offset(one: KernelTensor, many: KernelTensor, row: int, count: int) -> int | None:
    """Where a row begins in a tensor of many, bytes; None: it has none, or vectors would not be aligned there."""
    if (one.dtype, one.shape) == (many.dtype, many.shape):
        return 0
    if (many.dtype, many.shape) != (one.dtype, (one.shape[0] * count, *one.shape[1:])):
        return None
    is_number = len(one.shape) == 1 == one.shape[0]
    return row * one.bytes if is_number or one.bytes % ALIGNMENT == 0 else None
