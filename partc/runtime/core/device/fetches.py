"""Rows that this device fetches: the receiving end of a transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from partc.format.message_parts import Held, Reached
from partc.format.messages import Prepare, Rows, Want
from partc.format.role import Role
from partc.format.state_kinds import is_any_rewritten, is_rewritten
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import Reset, Send, WriteRows
from partc.runtime.core.device.copies import Copies
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.rows import checked, state_of
from partc.runtime.core.links.links import Links
from partc.runtime.core.liveness import Progress

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
    def known_end(self) -> int:
        """The step that rows are needed up to, where requests stand still; 0: as far as the holder has them.

        Behind it there may be steps with guesses, which are no part of the request.
        """
        return 0 if self.waits or self.rewritten else self.reached.step

    @property
    def counts(self) -> bool:
        """Whether a request can go on with what is here."""
        return bool(self.have) and (self.exact or not self.rewritten)


@dataclass(slots=True)
class Fetches:
    """The rows that this device fetches for the placement to come."""

    role: Role
    requests: Requests
    links: Links
    copies: Copies
    patience_s: float
    """The time without an answer after which rows count as lost, seconds."""
    _fetches: dict[Key, _Fetch] = field(default_factory=dict)
    _epoch: int = 0
    """The change that they are for."""
    _begun: dict[int, int] = field(default_factory=dict)
    """Slot → the request for which rows were written to it."""

    def close(self, request: int) -> None:
        """A request is over: its slot belongs to another one soon."""
        self._fetches = {key: fetch for key, fetch in self._fetches.items() if key[0] != request}

    def begin(self, role: Role, message: Prepare, now: float) -> Iterator[Action]:
        """Fetch what a device needs for its next role, or the steps that have come since."""
        if message.epoch != self._epoch:
            self.forget()
            self._epoch = message.epoch
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
        fetch = self._fetches.get((rows.request, rows.submodule))
        if fetch is None or (rows.epoch, rows.begin, rows.part) != (self._epoch, fetch.have, fetch.part):
            return
        if peer != fetch.holder or fetch.exact:
            return
        rewritten = bool(rows.parts) and is_rewritten(state_of(self.role, rows).kind)
        if not rows.parts or rows.end < rows.begin + (not rewritten):
            fetch.given_up = True
            return
        slot = fetch.reached.slot
        if self.requests.in_slot(slot) not in (None, rows.request):
            return  # its end has not been told of, but it is over
        array = checked(rows, frames, self.role)
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

    # -- inner workings

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
            end=fetch.end or fetch.known_end, part=fetch.part, waits=fetch.waits,
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
