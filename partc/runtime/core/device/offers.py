"""Rows that others fetch from this device, or keep copies of: the sending end of a transfer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from msgspec.structs import replace

from partc.format.dtypes import Array
from partc.format.frames import to_frames
from partc.format.message_parts import TensorSpec
from partc.format.messages import Rows, Want
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import ReadRows, Send
from partc.runtime.core.device.request import Request
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.rows import header, parts_of, state_of
from partc.runtime.core.events import Origin
from partc.runtime.core.links.links import Links

_MIRRORED_ROWS = 8
"""Rows that go to a copy at once: a message takes as long with one as with a few, and steps wait for it."""
_MOST_READING = 4096
"""Answers that may be read at once."""

Key = tuple[int, str]
"""Request and sub-module."""


@dataclass(slots=True)
class Offers:
    """The rows that this device gives to others."""

    role: Role
    requests: Requests
    links: Links
    _waiting: dict[tuple[str, Key], tuple[Origin, Want]] = field(default_factory=dict)
    """Device and what it asks for → its last question, where the step is not over."""
    _reading: deque[tuple[Origin, Rows]] = field(default_factory=deque)
    """Answers whose rows are being read."""
    _sent: dict[Key, int] = field(default_factory=dict)
    """Steps whose rows the device has that keeps a copy."""

    def adopt(self, role: Role) -> None:
        """Another placement is in force: copies are kept elsewhere."""
        self.role = role
        self._sent.clear()

    def close(self, request: int) -> None:
        """A request is over."""
        self._sent = {key: steps for key, steps in self._sent.items() if key[0] != request}

    def begin(self, epoch: int) -> None:
        """A change is prepared: questions of earlier ones are void."""
        self._waiting = {key: asked for key, asked in self._waiting.items() if asked[1].epoch == epoch}

    def end(self) -> None:
        """The change has come into force, or will not be: nobody may ask for rows any more."""
        self._waiting.clear()

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
                head = header(want.epoch, want.request, want.submodule, want.begin, want.begin)
                yield Send(origin, replace(head, part=want.part))
            return
        end = min(want.end or self._told(request, want), request.steps)
        head = header(want.epoch, want.request, want.submodule, want.begin, end)
        yield from self._read_out(origin, request, head, want.part, whole=not want.waits)

    def read(self, array: Array) -> Iterator[Action]:
        """The rows of the oldest answer."""
        origin, rows = self._reading.popleft()
        spec = TensorSpec(rows.state, state_of(self.role, rows).dtype, array.shape)
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
        if want.waits:
            return self._told(request, want) > want.begin
        if not self.role.rewrites(want.submodule):
            return request.steps > want.begin
        is_between = self.requests.steps_in(request.number, want.submodule) == request.steps
        return is_between and 0 < request.steps >= want.begin and want.end in (0, request.steps)

    @staticmethod
    def _told(request: Request, want: Want) -> int:
        """Steps of which rows are told: where others follow meanwhile, those that are not taken back.

        An end that an earlier part told of stays.
        """
        return request.settled if want.waits and not want.end else request.steps

    def _mirror(self, number: int, submodule: str, keeper: str) -> Iterator[Action]:
        request, key = self.requests.request(number), (number, submodule)
        sent, way = self._sent.get(key, 0), self.links.way_to(keeper)
        if request is None or _rows_between(request, sent) < _MIRRORED_ROWS:
            return
        if way is None:
            yield from self.links.connect(keeper)
            return
        self._sent[key] = request.settled
        head = header(self.role.epoch, number, submodule, sent, request.settled)
        yield from self._read_out(way, request, head)

    def _read_out(
        self, way: Origin, request: Request, head: Rows, only: int | None = None, *, whole: bool = False
    ) -> Iterator[Action]:
        """Have the rows of some steps read, which is answered by `read`: all parts of them, or only one.

        States that steps rewrite are read as well where `whole` says so.
        """
        ends = request.position(head.end)
        states = self.role.submodules[head.submodule].states
        parts = list(parts_of(states, request.position(head.begin), ends, whole=whole))
        for part, (state, row, begin, stop) in enumerate(parts):
            if only is None or part == only:
                rows = replace(
                    head,
                    part=part,
                    parts=len(parts),
                    sequences=len(ends),
                    state=state,
                    row=row,
                    position=begin,
                )
                self._reading.append((way, rows))
                yield ReadRows(head.submodule, request.slot, state, row, begin, stop)


def _rows_between(request: Request, step: int) -> int:
    """Rows that the steps from this one to the last that stays have added to each sequence."""
    begins, ends = request.position(step), request.position(request.settled)
    return max((end - begin for begin, end in zip_longest(begins, ends, fillvalue=0)), default=0)
