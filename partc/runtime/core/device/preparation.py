"""The placement that a device prepares, while the one in force goes on.

| state | meaning | left by |
| --- | --- | --- |
| none | no change is prepared | `prepare` → loading |
| loading | sub-modules are being loaded | the last of them → fetching; a failure, which PREPARED tells → none |
| fetching | links are missing, or rows | all are there: PREPARED → prepared; a link stays away: as above → none |
| prepared | PREPARED is told | `prepare` with the last steps → fetching; `commit` → none |

The change that was asked for last takes the place of the one that is prepared, also where its epoch is lower: a source
that has started anew does not know of it. `abort` leads to none. What was loaded for nothing is released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from partc.errors import PartcError, RunError
from partc.format.message_parts import Held, Problem
from partc.format.messages import Abort, Commit, Prepare, Prepared, Want
from partc.format.placement import read_placement
from partc.format.role import Role, check_role
from partc.runtime.core.actions import Action, Tell
from partc.runtime.core.commands import Load, Release
from partc.runtime.core.device.journal import Journal
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.transfer import Transfer
from partc.runtime.core.links.links import Links
from partc.runtime.core.links.outages import Wait, not_reached


class State(Enum):
    """State of the change that a device prepares."""

    NONE = "none"
    LOADING = "loading"
    FETCHING = "fetching"
    PREPARED = "prepared"


@dataclass(slots=True)
class Preparation:
    """The change that a device prepares."""

    role: Role
    """The role in force."""
    incarnation: int
    links: Links
    requests: Requests
    transfer: Transfer
    link_wait: Wait
    """The wait for links that only the placement to come needs."""
    state: State = State.NONE
    _next: Role | None = None
    _message: Prepare | None = None
    _loaded: set[str] = field(default_factory=set)
    """Sub-modules that the engine has."""
    _under_way: deque[tuple[str, ...]] = field(default_factory=deque)
    """Sub-modules that the engine is asked to load; it answers in the same order."""

    def __post_init__(self) -> None:
        self._under_way.append(self.role.running)

    @property
    def is_fetching(self) -> bool:
        """Whether `look` may find what was missing."""
        return self.state is State.FETCHING

    def gives(self, device: str, want: Want) -> bool:
        """Whether a device may ask for rows: the change that is prepared gives it that sub-module, for that request."""
        role, message = self._next, self._message
        if role is None or message is None or want.epoch != role.epoch:
            return False
        is_of_it = any(each.request == want.request for each in message.requests)
        return is_of_it and want.submodule in role.placement.running.get(device, ())

    def may_follow(self, epoch: int) -> bool:
        """Whether PREPARE of this epoch may still come."""
        return epoch > self.role.epoch and epoch != self._epoch

    @property
    def due(self) -> float | None:
        """The time at which `look` must be called, even if nothing has come."""
        return self.link_wait.ends

    def prepare(self, message: Prepare, text: bytes, now: float) -> Iterator[Action]:
        """The source asks for it."""
        if message.epoch <= self.role.epoch:
            return
        if self._next is None or message.placement.hex() != self._next.placement_id:
            try:
                self._next = self._read(message, text)
            except PartcError as error:
                yield self._unable(message.epoch, error)
                return
            self.link_wait.since = None
            yield from self.links.prepare(self._next, message.addresses)
            yield from self._load(self._next)
        elif self.state is State.PREPARED and not message.stands_still:
            return  # it is told: an answer to this question could pass for that to the next one, with the last steps
        if self.role.rewrites_any:
            self.requests.halt(each.request for each in message.requests if message.stands_still)
        self._message, self.state = message, State.LOADING
        yield from self.look(now)

    def loaded(self) -> Iterator[Action]:
        """The engine has loaded what it was asked for."""
        self._loaded.update(self._under_way.popleft())
        if self.state is State.NONE:
            yield from self._release()

    def failed(self, error: PartcError) -> Iterator[Action]:
        """The engine cannot load it."""
        failed = self._under_way.popleft()
        if self._next is not None and not set(failed).isdisjoint(self._next.running):
            yield self._unable(self._epoch, error)
            yield from self._drop()

    def look(self, now: float) -> Iterator[Action]:
        """Go on, if what was missing is there."""
        if self._next is None or self._message is None:
            return
        if self.state is State.LOADING and self._loaded.issuperset(self._next.running):
            self.state = State.FETCHING
            yield from self.transfer.begin(self._next, self._message, now)
        if self.state is not State.FETCHING:
            return
        if missing := self.links.outgoing.missing_for(self._next):
            yield from self._wait_for(missing[0], now)
            return
        self.link_wait.since = None
        if self.transfer.fetches.done:
            self.state = State.PREPARED
            yield self._prepared(self._next)

    def linked(self, peer: str) -> Iterator[Action]:
        """A connection stands again: what was told to the source over the old one may be lost."""
        if peer == self.role.source and self.state is State.PREPARED and self._next is not None:
            yield self._prepared(self._next)

    def commit(self, commit: Commit) -> Role | None:
        """The role that is in force now; None where another life of this device is meant, or another change."""
        role = self._next
        if self.state is not State.PREPARED or role is None or commit.incarnation != self.incarnation:
            return None
        return role if commit.placement.hex() == role.placement_id else None

    def adopt(self, role: Role) -> Iterator[Action]:
        """A role is in force: what it does not run is released."""
        self.role = role
        self._end()
        yield from self._release()

    def abort(self, abort: Abort) -> Iterator[Action]:
        """The source has given the change up."""
        if abort.epoch == self._epoch:
            yield Journal.dropped(abort)
            yield from self._drop()

    # -- inner workings

    @property
    def _epoch(self) -> int:
        """The epoch to come; 0: none."""
        return 0 if self._next is None else self._next.epoch

    def _read(self, message: Prepare, text: bytes) -> Role:
        """The role to come; raises BundleError or RunError where it does not fit the build."""
        role = Role(self.role.build, read_placement(text, "prepare"))
        if (role.epoch, role.placement_id) != (message.epoch, message.placement.hex()):
            raise RunError(f"the placement is not that of epoch {message.epoch}", cause="bug")
        check_role(role, "prepare")
        return role

    def _prepared(self, role: Role) -> Tell:
        message = Prepared(epoch=self._epoch, incarnation=self.incarnation, have=self._have(role))
        return Tell(self.role.source, message)

    def _have(self, role: Role) -> tuple[Held, ...]:
        """The watermarks of what the device runs already, and of what it fetched."""
        kept = [name for name in role.running if name in self.role.running]
        return (*self.requests.held(kept), *self.transfer.fetches.held())

    def _load(self, role: Role) -> Iterator[Action]:
        coming = {name for names in self._under_way for name in names}
        missing = tuple(name for name in role.running if name not in self._loaded | coming)
        if missing:
            self._under_way.append(missing)
            yield Load(role.epoch, missing)

    def _wait_for(self, peer: str, now: float) -> Iterator[Action]:
        """Wait for a link, but not for ever: a network may never carry it."""
        if self.link_wait.since is None:
            self.link_wait.since = now
        elif self.link_wait.is_over(now):
            yield self._unable(self._epoch, not_reached(self.role.device, peer, self.link_wait.limit_s))
            yield from self._drop()

    def _end(self) -> None:
        self._next, self._message, self.state, self.link_wait.since = None, None, State.NONE, None

    def _drop(self) -> Iterator[Action]:
        self._end()
        self.requests.halt(())
        self.transfer.end()
        yield from self._release()

    def _release(self) -> Iterator[Action]:
        spare = tuple(sorted(self._loaded.difference(self.role.running)))
        if spare:
            self._loaded.difference_update(spare)
            yield Release(spare)

    def _unable(self, epoch: int, error: PartcError) -> Tell:
        error.where = error.where or self.role.device
        message = Prepared(epoch=epoch, incarnation=self.incarnation, have=(), problem=Problem.of(error))
        return Tell(self.role.source, message)
