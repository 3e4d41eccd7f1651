"""Rows of states on their way from one device to another, while the ring runs.

The device that will run a sub-module asks the one that runs it now (`want`), part after part, and gets `rows`. So there
is never more than one part of a sub-module on its way, a part that is lost is one that nobody answers, and the owner
keeps nothing in mind but the questions for steps that are not over yet. Rows count from step to step without a gap; the
watermark (`have`) rises when the last part of some steps is here. It is forgotten when the slot begins anew.

DéjàVu and Llumnix stream rows in the same way, from a sender that decides; here the receiver does, which may be the one
that has restarted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from msgspec.structs import replace

from partc.errors import RunError
from partc.format.build import State
from partc.format.dtypes import DTYPES, Array
from partc.format.frames import join_tensors, to_frames
from partc.format.message_parts import Held, Reached, TensorSpec
from partc.format.messages import Prepare, Rows, Want
from partc.format.role import Role
from partc.format.state_kinds import by_kind, is_any_rewritten, is_rewritten
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import ReadRows, Reset, Send, WriteRows
from partc.runtime.core.device.copies import Copies
from partc.runtime.core.device.request import Request
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.events import Origin
from partc.runtime.core.links.links import Links
from partc.runtime.core.liveness import Progress

_MIRRORED_ROWS = 8
"""Rows that go to a copy at once: a message takes as long with one as with a few, and steps wait for it."""
_PART_BYTES = 256 * 1024
_MOST_READING = 4096
"""Answers that may be read at once."""

Key = tuple[int, str]
"""Request and sub-module."""


@dataclass(slots=True)
class _Fetch:
    """The rows of one request in one sub-module, on their way here."""

    reached: Reached
    submodule: str
    holder: str
    waits: bool
    """Whether further steps follow meanwhile."""
    asked: Progress
    have: int = 0
    """Steps whose rows are all here."""
    end: int = 0
    """The steps that are on their way end before this one; 0: not known."""
    part: int = 0
    rewritten: bool = False
    """Whether a step rewrites states as a whole: they come when requests stand still, behind the rows."""
    exact: bool = False
    """Whether they are here, as of the step `have`."""
    given_up: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing more is awaited."""
        if self.rewritten and not self.waits and self.reached.step:
            return self.given_up or self.exact
        return self.given_up or self.have >= self.reached.step

    @property
    def counts(self) -> bool:
        """Whether a request can go on with what is here."""
        return bool(self.have) and (self.exact or not self.rewritten)


@dataclass(slots=True)
class Transfer:
    """The rows that this device fetches, and those that others fetch from it."""

    role: Role
    requests: Requests
    links: Links
    patience_s: float
    """The time without an answer after which rows count as lost, seconds."""
    _fetches: dict[Key, _Fetch] = field(default_factory=dict)
    _epoch: int = 0
    """The change that they are for."""
    _begun: dict[int, int] = field(default_factory=dict)
    """Slot → the request for which rows were written to it."""
    _waiting: dict[tuple[str, Key], tuple[Origin, Want]] = field(default_factory=dict)
    """Device and what it asks for → its last question, where the step is not over."""
    _reading: deque[tuple[Origin, Rows]] = field(default_factory=deque)
    """Answers whose rows are being read."""
    copies: Copies = field(init=False)
    _sent: dict[Key, int] = field(default_factory=dict)
    """Steps whose rows the device has that keeps a copy."""

    def __post_init__(self) -> None:
        self.copies = Copies(self.role)

    def adopt(self, role: Role) -> None:
        """Another placement is in force."""
        self.role = role
        self.copies.adopt(role)
        self._sent.clear()
        self.end()

    def close(self, request: int) -> None:
        """A request is over: its slot belongs to another one soon."""
        self.copies.close(request)
        self._sent = {key: steps for key, steps in self._sent.items() if key[0] != request}
        self._fetches = {key: fetch for key, fetch in self._fetches.items() if key[0] != request}

    # -- the receiving end

    def begin(self, role: Role, message: Prepare, now: float) -> Iterator[Action]:
        """Fetch what a device needs for its next role, or the steps that have come since."""
        if message.epoch != self._epoch:
            self.forget()
            self._epoch = message.epoch
            self._waiting = {
                key: asked for key, asked in self._waiting.items() if asked[1].epoch == self._epoch
            }
        for reached in message.requests:
            for submodule in role.running:
                if not self._is_here(reached.request, submodule):
                    yield from self._fetch(reached, submodule, message, now)

    @property
    def done(self) -> bool:
        """Whether all rows are here that could be had."""
        return all(fetch.done for fetch in self._fetches.values())

    @property
    def due(self) -> float | None:
        """When `look` must be called."""
        return min(
            (f.asked.expires(self.patience_s) for f in self._fetches.values() if not f.done), default=None
        )

    def look(self, now: float) -> None:
        """Give up what nobody answers."""
        for fetch in self._fetches.values():
            fetch.given_up |= now >= fetch.asked.expires(self.patience_s)

    def held(self) -> Iterator[Held]:
        """The watermarks of what was fetched."""
        for (request, submodule), fetch in self._fetches.items():
            if fetch.counts:
                yield Held(request, submodule, fetch.have, fetch.rewritten)

    def came(self, peer: str, rows: Rows, frames: Sequence[memoryview], now: float) -> Iterator[Action]:
        """Take a part; one that was not asked for is ignored.

        Raises:
            RunError: it does not fit the state.
        """
        if rows.epoch == self.role.epoch and rows.parts:
            self.copies.take(peer, rows, _checked(rows, frames, self.role))
            return
        fetch = self._fetches.get((rows.request, rows.submodule))
        if fetch is None or (rows.epoch, rows.begin, rows.part) != (self._epoch, fetch.have, fetch.part):
            return
        if peer != fetch.holder or fetch.exact:
            return
        rewritten = bool(rows.parts) and is_rewritten(_state(self.role, rows).kind)
        if not rows.parts or rows.end < rows.begin + (not rewritten):
            fetch.given_up = True
            return
        slot = fetch.reached.slot
        if self.requests.in_slot(slot) not in (None, rows.request):
            return  # its end has not been told of, but it is over
        array = _checked(rows, frames, self.role)
        yield from self._take_slot(slot, rows.request, rows.sequences)
        yield WriteRows(rows.submodule, slot, rows.state, rows.row, rows.position, array)
        fetch.asked.moved(now)
        fetch.part, fetch.end = rows.part + 1, rows.end
        if fetch.part == rows.parts:
            fetch.have, fetch.part, fetch.end, fetch.exact = rows.end, 0, 0, rewritten
        if not fetch.done:
            yield from self._ask(fetch)

    def linked(self, peer: str) -> Iterator[Action]:
        """A connection stands again: ask again for what may be lost."""
        for fetch in self._fetches.values():
            if fetch.holder == peer and not fetch.done:
                yield from self._ask(fetch)

    def reset(self, slot: int) -> None:
        """A slot begins anew: rows that were written to it are gone."""
        self._begun.pop(slot, None)
        for key in [key for key, fetch in self._fetches.items() if fetch.reached.slot == slot]:
            del self._fetches[key]

    def forget(self) -> None:
        """Forget rows that were fetched for an earlier change."""
        self._fetches.clear()
        self._begun.clear()

    def end(self) -> None:
        """The change has come into force, or will not be: nobody may ask for rows any more."""
        self.forget()
        self._waiting.clear()

    # -- the sending end

    def wanted(self, peer: str, origin: Origin, want: Want) -> Iterator[Action]:
        """Answer a question, without rows where there are none; or keep it until its step is over.

        One that comes while very many are being answered is ignored: it is asked again with the next PREPARE.
        """
        if len(self._reading) >= _MOST_READING:
            return
        request = self.requests.request(want.request) if want.submodule in self.role.running else None
        if request is None or not self._has(request, want):
            if request is not None and want.waits:
                self._waiting[peer, (want.request, want.submodule)] = origin, want
            else:
                header = _header(want.epoch, want.request, want.submodule, want.begin, want.begin)
                yield Send(origin, replace(header, part=want.part))
            return
        end = min(want.end or request.steps, request.steps)
        header = _header(want.epoch, want.request, want.submodule, want.begin, end)
        yield from self._read_out(origin, request, header, want.part, whole=not want.waits)

    def read(self, array: Array) -> Iterator[Action]:
        """The rows of the oldest answer."""
        origin, rows = self._reading.popleft()
        spec = TensorSpec(rows.state, _state(self.role, rows).dtype, array.shape)
        yield Send(origin, replace(rows, values=(spec,)), to_frames(array))

    @property
    def has_waiting(self) -> bool:
        """Whether somebody waits for steps to be over."""
        return bool(self._waiting)

    def stepped(self) -> Iterator[Action]:
        """Steps are over: answer those who waited for them."""
        waiting, self._waiting = self._waiting, {}
        for (peer, _), (origin, want) in waiting.items():
            yield from self.wanted(peer, origin, want)

    @property
    def mirrors(self) -> bool:
        """Whether another device keeps copies of rows of this one."""
        return bool(self.role.mirrored)

    def mirror(self) -> Iterator[Action]:
        """Send the rows of steps that are over to the devices that keep copies."""
        for submodule, keeper in self.role.mirrored.items():
            for number in self.requests.numbers:
                yield from self._mirror(number, submodule, keeper)

    # -- inner workings

    def _has(self, request: Request, want: Want) -> bool:
        """Whether the answer to a question can be given now.

        States that a step rewrites are those of one step: they can be read between two steps, while that is the last.
        """
        if want.waits or not self.role.rewrites(want.submodule):
            return request.steps > want.begin
        is_between = self.requests.steps_in(request.number, want.submodule) == request.steps
        return is_between and 0 < request.steps >= want.begin and want.end in (0, request.steps)

    def _mirror(self, number: int, submodule: str, keeper: str) -> Iterator[Action]:
        request, key = self.requests.request(number), (number, submodule)
        sent, way = self._sent.get(key, 0), self.links.way_to(keeper)
        if request is None or _rows_between(request, sent) < _MIRRORED_ROWS:
            return
        if way is None:
            yield from self.links.connect(keeper)
            return
        self._sent[key] = request.steps
        header = _header(self.role.epoch, number, submodule, sent, request.steps)
        yield from self._read_out(way, request, header)

    def _read_out(
        self, way: Origin, request: Request, header: Rows, only: int | None = None, *, whole: bool = False
    ) -> Iterator[Action]:
        """Have the rows of some steps read, which is answered by `read`: all parts of them, or only one.

        States that steps rewrite are read as well where `whole` says so.
        """
        ends = request.position(header.end)
        states = self.role.submodules[header.submodule].states
        parts = list(_parts(states, request.position(header.begin), ends, whole=whole))
        for part, (state, row, begin, stop) in enumerate(parts):
            if only is None or part == only:
                rows = replace(
                    header,
                    part=part,
                    parts=len(parts),
                    sequences=len(ends),
                    state=state,
                    row=row,
                    position=begin,
                )
                self._reading.append((way, rows))
                yield ReadRows(header.submodule, request.slot, state, row, begin, stop)

    def _is_here(self, request: int, submodule: str) -> bool:
        return submodule in self.role.running and self.requests.request(request) is not None

    def _fetch(self, reached: Reached, submodule: str, message: Prepare, now: float) -> Iterator[Action]:
        key = reached.request, submodule
        fetch = self._fetches.get(key)
        kinds = [state.kind for state in self.role.submodules[submodule].states]
        if fetch is None or (fetch.reached, fetch.waits) != (reached, not message.stands_still):
            holder = message.holders.get(submodule, "")
            have = 0 if fetch is None else fetch.have
            fetch = _Fetch(reached, submodule, holder, not message.stands_still, Progress(now), have)
            fetch.rewritten = is_any_rewritten(kinds)
            fetch.given_up = holder in ("", self.role.device)
            self._fetches[key] = fetch
            if holder == self.role.device:
                yield from self._from_copy(fetch)
        if self.role.keeps or (fetch.waits and kinds and all(map(is_rewritten, kinds))):
            fetch.given_up = (
                True  # what a first step keeps goes nowhere; whole states do when nothing runs any more
            )
        elif not kinds:
            fetch.have = reached.step  # there is nothing to fetch
        if not fetch.done:
            yield from self._ask(fetch)

    def _ask(self, fetch: _Fetch) -> Iterator[Action]:
        way = self.links.way_to(fetch.holder)
        if way is None:
            yield from self.links.connect(fetch.holder)
            return
        want = Want(
            epoch=self._epoch, request=fetch.reached.request, submodule=fetch.submodule, begin=fetch.have,
            end=fetch.end, part=fetch.part, waits=fetch.waits,
        )  # fmt: skip
        yield Send(way, want)

    def _take_slot(self, slot: int, request: int, sequences: int) -> Iterator[Action]:
        """The states of a slot begin anew before the first rows of a request that has not begun here."""
        if self.requests.request(request) is None and self._begun.get(slot) != request:
            self._begun[slot] = request
            yield Reset(slot, {**self.role.dims, "batch": sequences})

    def _from_copy(self, fetch: _Fetch) -> Iterator[Action]:
        """Write the rows of which this device keeps a copy."""
        request, slot = fetch.reached.request, fetch.reached.slot
        copy = self.copies.of(request, fetch.submodule)
        if copy is None or not min(copy.have, fetch.reached.step):
            return  # where no step is over, the slot may be another request's still
        fetch.have = min(copy.have, fetch.reached.step)
        yield from self._take_slot(slot, request, copy.sequences)
        for state, row, rows in copy.all_rows():
            yield WriteRows(fetch.submodule, slot, state, row, 0, rows)


def _rows_between(request: Request, step: int) -> int:
    """Rows that the steps from this one to the last have added to each sequence."""
    begins, ends = request.position(step), request.position(request.steps)
    return max((end - begin for begin, end in zip_longest(begins, ends, fillvalue=0)), default=0)


def _header(epoch: int, request: int, submodule: str, begin: int, end: int) -> Rows:
    """A message about some steps, without rows."""
    return Rows(
        epoch=epoch, request=request, submodule=submodule, begin=begin, end=end, part=0, parts=0, sequences=0, state="",
        row=0, position=0, values=(),
    )  # fmt: skip


def _parts(
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


def _state(role: Role, rows: Rows) -> State:
    """The state that rows belong to; raises RunError where there is none."""
    module = role.submodules.get(rows.submodule)
    for state in module.states if module is not None else ():
        if state.name == rows.state:
            return state
    raise RunError(f"{rows.submodule!r:.60} has no state {rows.state!r:.60}", cause="refused")


def _checked(rows: Rows, frames: Sequence[memoryview], role: Role) -> Array:
    """The rows of a part; raises RunError where they do not fit the state and the model."""
    state, model = _state(role, rows), role.model
    spec = rows.values[0] if len(rows.values) == 1 else None
    if spec is None or spec.dtype != state.dtype or len(spec.shape) != 3:
        raise RunError(f"these are no rows of {rows.state}", cause="refused")
    fits = rows.row < rows.sequences <= model.max_batch
    fits &= rows.position + spec.shape[0] <= by_kind(state.kind, rows=model.max_sequence, whole=1)
    fits &= spec.shape[1:] == _row_shape(state)
    if not fits or spec.shape[0] * _row_bytes(state) != sum(f.nbytes for f in frames):
        raise RunError(f"{list(spec.shape)} at {rows.position} are no rows of {rows.state}", cause="refused")
    return join_tensors(rows.values, frames)[spec.name]
