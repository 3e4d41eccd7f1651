"""One step of a request: its sizes, its rows on the wire, and how it is held against the placement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.build import TensorType
from partc.format.build_rules import MOST_STEP_TOKENS
from partc.format.dtypes import DTYPES, Array
from partc.format.message_parts import Likely, Opening, Row, TensorSpec
from partc.format.messages import Data
from partc.format.program import CHUNK, REPLAY
from partc.format.role import Role

MOST_FORCED = MOST_STEP_TOKENS
"""Steps with known results that a request may have under way; the last of them is waited for."""
MOST_GUESSED = MOST_FORCED - 1
"""Steps behind the one with the last known token that a request may have under way; their tokens are guesses."""


class StepMember(Struct, frozen=True):
    """A request that has one row in a step that it shares."""

    request: int
    slot: int
    step: int
    branch: int = 0


class Step(Struct, frozen=True):
    """A step of a request: a prompt, a part of one, or a token; or several rows of one token each.

    Such rows are those of several requests, which have one each, of their own slots and at their own positions: a
    shared step, which bears the number of the first. Or they are consecutive tokens of one request, in its slot, each
    at the position behind the one before: those behind the first are guesses.
    """

    request: int
    """Counts up at the source; never used twice."""
    slot: int
    """Which of the pre-allocated states the request has, below max_requests."""
    step: int
    """Counts from 0; the prefill is 0, or as many higher as it has parts before it."""
    phase: str
    """The program to run: prefill or decode; chunk for a part of a prompt behind which more comes; replay for a decode
    step whose token nobody waits for."""
    dims: Mapping[str, int]
    """The size of every symbol in this step."""
    position: tuple[int, ...] = ()
    """(batch,) valid tokens in the cache of each sequence; empty for the task `graph`."""
    length: tuple[int, ...] = ()
    """(batch,) valid new tokens of each sequence; empty for the task `graph`."""
    opening: Opening | None = None
    """Present in step 0 alone."""
    likely: tuple[tuple[Likely, ...], ...] = ()
    """Per sequence the probabilities of its token and of others; present once it is drawn, where they are wanted: in a
    shared step they are empty for requests that want none."""
    others: tuple[StepMember, ...] = ()
    """The other requests that share the step; it is one of decode then."""
    further: int = 0
    """Guessed tokens that it takes behind its own, a row each; it is one of decode then, and nobody shares it."""
    branch: int = 0
    """The step from which on its request was last taken back; 0: it never was."""
    busy_s: float | None = None
    """Seconds that the busiest device so far has computed for it; None: nobody wants to know."""

    @property
    def members(self) -> tuple[StepMember, ...]:
        """The requests that it belongs to, in the order of their rows if there are several."""
        return (StepMember(self.request, self.slot, self.step, self.branch), *self.others)

    @property
    def rows(self) -> int:
        """Rows that are steps of their own: of several requests, or of consecutive tokens of one."""
        return 1 + len(self.others) + self.further

    @property
    def end(self) -> tuple[int, ...]:
        """(batch,) valid tokens in the cache of each sequence after this step."""
        return tuple(map(int.__add__, self.position, self.length))

    def same_as(self, other: Step) -> bool:
        """Whether two devices mean the same step; only the first messages of step 0 have an opening."""
        return (self.step, self.slot, self.dims, self.position, self.length, self.others, self.further) == (
            other.step, other.slot, other.dims, other.position, other.length, other.others, other.further,
        )  # fmt: skip


def together(steps: Sequence[Step]) -> Step:
    """One step of the tokens of several requests, or of consecutive tokens of one."""
    first, others = steps[0], steps[1:]
    if not others:
        return first
    is_of_one = others[0].request == first.request
    return replace(
        first,
        dims={**first.dims, "batch": len(steps)},
        position=tuple([step.position[0] for step in steps]),
        length=tuple([step.length[0] for step in steps]),
        others=() if is_of_one else tuple([step.members[0] for step in others]),
        further=len(others) if is_of_one else 0,
        busy_s=next((step.busy_s for step in steps if step.busy_s is not None), None),
    )


def apart(step: Step) -> list[Step]:
    """The steps of one row each that `together` made one of; the step itself where it is one."""
    if step.rows == 1:
        return [step]
    return [
        replace(
            step,
            request=member.request,
            slot=member.slot,
            step=member.step,
            branch=member.branch,
            dims={**step.dims, "batch": 1},
            position=step.position[row : row + 1],
            length=step.length[row : row + 1],
            likely=step.likely[row : row + 1] if step.likely and step.likely[row] else (),
            others=(),
            further=0,
        )
        for row, member in enumerate(_owners(step))
    ]


def _owners(step: Step) -> list[StepMember]:
    """The request, and the step of it, that each row belongs to."""
    own = [
        StepMember(step.request, step.slot, number, step.branch)
        for number in range(step.step, step.step + step.further + 1)
    ]
    return [*own, *step.others]


def rows_of(step: Step, max_batch: int) -> tuple[Row, ...]:
    """The rows of a step as they travel; one row for the task `graph`."""
    if step.rows > 1:
        return tuple(
            [
                Row(member.request, member.slot * max_batch, member.step, position, length, member.branch)
                for member, position, length in zip(_owners(step), step.position, step.length, strict=True)
            ]
        )
    first = step.slot * max_batch
    places = zip(step.position, step.length, strict=True) if step.position else ((0, 0),)
    return tuple(
        [
            Row(step.request, first + index, step.step, position, length, step.branch)
            for index, (position, length) in enumerate(places)
        ]
    )


def step_of(data: Data, role: Role) -> Step:
    """The step that a message belongs to.

    Raises:
        RunError: its rows are neither those of one request nor one each of several, nor consecutive tokens of one.
    """
    rows, most = data.rows, role.model.max_batch
    first, last = rows[0], rows[-1]
    if role.model.step_requests > 1 and last.request != first.request:
        return _shared_step_of(data, role)
    if role.model.most_tokens > 1 and last.step != first.step:
        return _step_of_tokens(data, role)
    slot = first.row // most
    for index, row in enumerate(rows):
        own = row.request, row.step, row.branch, row.row
        if own != (first.request, first.step, first.branch, slot * most + index):
            raise RunError(f"row {row.row} of step {row.step} does not belong to request {first.request}")
    if len(rows) > most:
        raise RunError(f"{len(rows)} sequences, at most {most} are planned for")
    opening = data.open[0] if data.open else None
    if len(data.open) > 1 or (opening is not None and opening.request != first.request):
        raise RunError(f"a message of request {first.request} opens another one")
    has_rows = role.has_step_inputs
    position = tuple([row.position for row in rows]) if has_rows else ()
    length = tuple([row.length for row in rows]) if has_rows else ()
    return Step(
        first.request, slot, first.step, data.phase, data.dims, position, length, opening, data.likely,
        branch=first.branch, busy_s=data.busy_s,
    )  # fmt: skip


def _shared_step_of(data: Data, role: Role) -> Step:
    rows, most = data.rows, role.model.max_batch
    if data.phase != "decode" or data.open or len(rows) > role.model.step_requests:
        raise RunError(f"{len(rows)} requests do not share a step of {data.phase!r} in this build")
    slots = [row.row // most for row in rows]
    for row, slot in zip(rows, slots, strict=True):
        if row.row != slot * most or slot >= role.model.max_requests:
            raise RunError(f"row {row.row} is not the first of a slot")
        if not row.step:
            raise RunError(f"the step that opens request {row.request} is shared")
    if len({row.request for row in rows}) < len(rows) or len(set(slots)) < len(rows):
        raise RunError("a request or a slot has two rows of a shared step")
    return _step_of_rows(
        data, [StepMember(r.request, slot, r.step, r.branch) for r, slot in zip(rows, slots, strict=True)]
    )


def _step_of_tokens(data: Data, role: Role) -> Step:
    rows, most, first = data.rows, role.model.most_tokens, data.rows[0]
    slot = first.row // role.model.max_batch
    if data.phase != "decode" or data.open or len(rows) > most:
        raise RunError(
            f"a step of {data.phase!r} has {len(rows)} tokens of a request, at most {most} are planned for"
        )
    for behind, row in enumerate(rows):
        follows = row.step == first.step + behind and row.position == first.position + behind
        is_own = (row.request, row.branch) == (first.request, first.branch)
        is_there = row.row == slot * role.model.max_batch
        if not (follows and is_own and is_there and first.step):
            raise RunError(f"step {row.step} does not follow step {first.step} of request {first.request}")
    step = _step_of_rows(data, [StepMember(first.request, slot, first.step, first.branch)])
    return replace(step, further=len(rows) - 1)


def _step_of_rows(data: Data, members: Sequence[StepMember]) -> Step:
    """The step of a message of several rows of one token each, of these requests."""
    first, *others = members
    return Step(
        request=first.request,
        slot=first.slot,
        step=first.step,
        phase=data.phase,
        dims=data.dims,
        position=tuple([row.position for row in data.rows]),
        length=tuple([row.length for row in data.rows]),
        likely=data.likely,
        others=tuple(others),
        branch=first.branch,
        busy_s=data.busy_s,
    )


def check_step(step: Step, role: Role) -> None:
    """Hold the numbers of a step against what the placement allows.

    Raises:
        RunError: with the field that is wrong.
    """
    model = role.model
    if step.slot >= model.max_requests:
        raise RunError(f"slot {step.slot}, there are {model.max_requests}")
    begins, is_chunked = step.phase not in ("decode", REPLAY), CHUNK in role.programs
    if (
        step.phase not in role.programs
        or begins < (step.step == 0)
        or begins > (is_chunked or step.step == 0)
    ):
        raise RunError(f"step {step.step} is no step of {step.phase!r}")
    for member in step.members:
        if member.branch > (member.step if step.phase == "decode" else 0):
            raise RunError(f"step {member.step} of {step.phase!r} is not of branch {member.branch}")
    if len(step.likely) not in (0, step.dims.get("batch", 1)):
        raise RunError(f"probabilities of {len(step.likely)} tokens")
    if (step.step == 0) != (step.opening is not None):
        raise RunError("a request is opened by its step 0, and by no other")
    for name, size in step.dims.items():
        most = _row_limit(step, role) if step.rows > 1 and name == "batch" else role.dims.get(name)
        if most is None or size > most:
            raise RunError(f"{name} is {size}, at most {most or 0} is planned for")
    if step.rows > 1 and (step.dims.get("sequence", 1) != 1 or set(step.length) != {1}):
        raise RunError(
            f"rows of {list(step.length)} tokens in a step of {step.rows} rows, one each is planned for"
        )
    if role.has_step_inputs:
        _check_rows(step, role)


def _row_limit(step: Step, role: Role) -> int:
    """The sequences of a step of this kind at most."""
    model = role.model
    if step.further:
        return model.most_tokens
    return model.step_requests if step.others else model.max_batch


def _check_rows(step: Step, role: Role) -> None:
    rows, new = step.dims.get("batch", 1), step.dims.get("sequence", 1)
    if not len(step.position) == len(step.length) == rows or rows > _row_limit(step, role):
        raise RunError(f"{rows} sequences with {len(step.position)} positions and {len(step.length)} lengths")
    most = role.model.max_sequence
    for position, length in zip(step.position, step.length, strict=True):
        if not 1 <= length <= new or position + new > most:
            raise RunError(f"{length} of {new} tokens at position {position}, max_sequence is {most}")


def announced(values: Iterable[tuple[str, Array]], types: Mapping[str, TensorType]) -> tuple[TensorSpec, ...]:
    """The descriptions of tensors that a program names, for the header of their message."""
    return tuple([TensorSpec(name, types[name].dtype, array.shape) for name, array in values])


def check_specs(
    specs: Sequence[TensorSpec], types: Mapping[str, TensorType], dims: Mapping[str, int]
) -> None:
    """Hold announced tensors against their declared types under `dims`.

    Raises:
        RunError: with the value and what is wrong with it.
    """
    for spec in specs:
        declared = types.get(spec.name)
        if declared is None:
            raise RunError(f"{spec.name!r} does not belong here")
        if spec.dtype != declared.dtype:
            raise RunError(f"{spec.name!r} is {spec.dtype}, the plan says {declared.dtype}")
        try:
            expected = declared.sizes(dims)
        except KeyError as error:
            raise RunError(f"{spec.name!r} needs the size of {error}") from None
        if spec.shape != expected:
            raise RunError(f"{spec.name!r} has the shape {list(spec.shape)}, the plan says {list(expected)}")


def check_sizes(specs: Sequence[TensorSpec], sizes: Sequence[int]) -> None:
    """Hold the bytes that came against the announced types and shapes.

    Raises:
        RunError: with the value and what is wrong with it.
    """
    if len(specs) != len(sizes):
        raise RunError(f"{len(specs)} tensors are announced, {len(sizes)} came")
    for spec, size in zip(specs, sizes, strict=True):
        if size != math.prod(spec.shape) * DTYPES[spec.dtype].itemsize:
            raise RunError(f"{spec.name!r} has {size} bytes, not those of {spec.dtype}{list(spec.shape)}")
