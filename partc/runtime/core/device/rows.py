"""Rows of states as messages carry them: their parts, their shapes, and the checks of what comes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from partc.errors import RunError
from partc.format.build import State
from partc.format.dtypes import DTYPES, Array
from partc.format.frames import join_tensors
from partc.format.messages import Rows
from partc.format.role import Role
from partc.format.state_kinds import by_kind, is_rewritten

_PART_BYTES = 256 * 1024


def header(epoch: int, request: int, submodule: str, begin: int, end: int) -> Rows:
    """A message about some steps, without rows."""
    return Rows(
        epoch=epoch, request=request, submodule=submodule, begin=begin, end=end, part=0, parts=0, sequences=0, state="",
        row=0, position=0, values=(),
    )  # fmt: skip


def parts_of(
    states: Sequence[State], begin: Sequence[int], end: Sequence[int], *, whole: bool
) -> Iterator[tuple[str, int, int, int]]:
    """(state, sequence, first row, the one behind the last) of every part; `begin` is empty for the first step.

    States that steps rewrite are the last ones, if `whole` asks for them: a single row each, of any size.
    """
    for state in states:
        for row, stop in enumerate(by_kind(state.kind, rows=end, whole=())):
            start = begin[row] if begin else 0
            most = max(1, _PART_BYTES // _row_bytes(state))
            for first in range(start, stop, most):
                yield state.name, row, first, min(first + most, stop)
    for state in states if whole else ():
        for row in range(by_kind(state.kind, rows=0, whole=len(end))):
            yield state.name, row, 0, 1


def _row_shape(state: State) -> tuple[int, int]:
    """(heads, d) of one position of one sequence: `heads` are all axes between the first and that of positions.

    A state that steps rewrite as a whole is one row of one head.
    """
    whole = is_rewritten(state.kind)
    heads, d = (() if whole else state.shape[1:-2]), state.shape[1:] if whole else state.shape[-1:]
    return tuple(math.prod(size for size in axes if isinstance(size, int)) for axes in (heads, d))  # type: ignore[return-value]


def _row_bytes(state: State) -> int:
    return math.prod(_row_shape(state)) * DTYPES[state.dtype].itemsize


def state_of(role: Role, rows: Rows) -> State:
    """The state that rows belong to; raises RunError where there is none."""
    module = role.submodules.get(rows.submodule)
    for state in module.states if module is not None else ():
        if state.name == rows.state:
            return state
    raise RunError(f"{rows.submodule!r:.60} has no state {rows.state!r:.60}", cause="refused")


def checked(rows: Rows, frames: Sequence[memoryview], role: Role) -> Array:
    """The rows of a part; raises RunError where they do not fit the state and the model."""
    state, model = state_of(role, rows), role.model
    spec = rows.values[0] if len(rows.values) == 1 else None
    if spec is None or spec.dtype != state.dtype or len(spec.shape) != 3:
        raise RunError(f"these are no rows of {rows.state}", cause="refused")
    fits = rows.row < rows.sequences <= model.max_batch
    fits &= rows.position + spec.shape[0] <= by_kind(state.kind, rows=model.max_sequence, whole=1)
    fits &= spec.shape[1:] == _row_shape(state)
    if not fits or spec.shape[0] * _row_bytes(state) != sum(f.nbytes for f in frames):
        raise RunError(f"{list(spec.shape)} at {rows.position} are no rows of {rows.state}", cause="refused")
    return join_tensors(rows.values, frames)[spec.name]
