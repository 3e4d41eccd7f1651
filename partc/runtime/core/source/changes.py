"""Changes of placement, at the source: REWIND (docs/wire.md).

Rows of a cache are addressed by position, and rows at or behind `position` are masked; sampling is a pure function of
seed and position; the source has all tokens. So after any change a request can go on from its watermark: the number of
steps whose rows the new owner of every sub-module has, without a gap. Steps from there to the present are computed
again with the tokens that are known. The source alone decides: its loss ends its requests anyway.

| state | meaning | left by |
| --- | --- | --- |
| settled | the placement in force stands | a loss, a return without memory, `place` → preparing, broken |
| broken | a device was lost, and no placement does without it | a return → settled, preparing |
| preparing | PREPARE is out; after a loss requests stand still | all PREPARED → stopping, or COMMIT → settled |
| stopping | requests run to their step boundaries | all at rest → closing |
| closing | PREPARE is out again, with the boundaries | all PREPARED: COMMIT → settled |

From the last three, the loss of a participant leads back to settled, and from there on with a higher epoch; nothing has
changed until COMMIT, so nothing is to be undone. A device that gets no COMMIT has an older epoch when it is back; that
is a return without memory. Placements are tried in order: the one in force, the compiled one, its contingencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from partc.errors import BundleError, PartcError, RunError
from partc.format.message_parts import Problem, Reached
from partc.format.messages import Abort, Ping, Place, Prepare, Prepared
from partc.format.placement import Placement, placement_frames, seal_placement
from partc.format.role import Role, check_role
from partc.runtime.core.actions import Action, Adopt, Broadcast, Broken, Hold, Mended, Replaced, Tell, Wish
from partc.runtime.core.events import Origin
from partc.runtime.core.liveness import Progress
from partc.runtime.core.source.change import Change, refusal, text_of_ring
from partc.runtime.core.source.members import Member, Members


class State(Enum):
    """State of the placement in force."""

    SETTLED = "settled"
    BROKEN = "broken"
    PREPARING = "preparing"
    STOPPING = "stopping"
    CLOSING = "closing"


@dataclass(slots=True)
class Changes:
    """The placement in force and the next one, at the source."""

    role: Role
    known: Sequence[Placement]
    """Placements to go over to: the compiled one, and its contingencies."""
    addresses: Mapping[str, str]
    """Device → HOST:PORT where it told one."""
    patience_s: float
    """The time without a sign of life after which a participant counts as lost, seconds."""
    state: State = State.SETTLED
    change: Change | None = None
    members: Members = field(init=False)
    highest: int = 0
    """The highest epoch that was ever heard of."""
    _refused: set[str] = field(default_factory=set)
    """Rings of the placements that a device could not prepare."""
    _wish: Wish | None = None
    _held_since: float | None = None
    """When the schedule was told to hold; None: requests go on."""
    _is_cut_short: bool = False
    """Whether steps that were under way are given up: only another change lets their requests go on."""
    _asked_at: float = 0.0

    def __post_init__(self) -> None:
        self.highest, self.members = self.role.epoch, Members(self.role)

    # -- what the source learns

    def greeted(self, device: str, member: Member) -> None:
        """A device is connected, or the source itself has loaded."""
        self.members.came(device, member)
        self.highest = max(self.highest, member.epoch)
        self.ready()

    def ready(self) -> None:
        """A device is connected, or its links stand: what could not be prepared may be possible now."""
        self._refused.clear()

    def answered(self, device: str, now: float) -> bool:
        """A device gives a sign of life; whether it was missed."""
        if self.change is not None and device in self.change.heard:
            self.change.heard[device].moved(now)
        return self.members.answered(device)

    # -- what follows

    def review(self, absent: Sequence[str], reached: Sequence[Reached], now: float) -> Iterator[Action]:
        """Find out whether what is in force or prepared can stay, and begin a change where it cannot.

        Args:
            absent: devices of the ring that are not ready, or to which no link stands.
            reached: the requests that are running.
            now: the time.
        """
        if self.change is not None:
            if all(self.members.is_there(device, life) for device, life in self.change.asked.items()):
                return
            yield from self.give_up(RunError("a device was lost meanwhile", cause="lost-peer"))
        missing, forgetful = self.members.missing(), self.members.forgetful()
        if not reached and not missing and all(map(self.members.runs_it, forgetful)):
            forgetful = []  # there is nothing to remember
        if missing or forgetful:
            yield from self._replace(missing, forgetful, reached, now)
        elif not absent:
            self.members.stand()
            yield from self._stands(reached, now)

    def begin_anew(self, error: PartcError, reached: Sequence[Reached], now: float) -> Iterator[Action]:
        """A request stands still though all devices answer: all go on from what they have; a move is given up."""
        if self.change is not None and not self.change.is_loss:
            yield from self.give_up(error)
        if self.change is None:
            yield from self._begin(self.role.placement, reached, now, is_loss=True)

    def place(self, origin: Origin, place: Place, placement: Placement, now: float) -> Iterator[Action]:
        """A client asks for a placement; `review` begins the change."""
        wish = Wish(origin, place.ticket, placement, place.reason, now)
        try:
            self._check(placement)
        except PartcError as error:
            yield refusal(wish, error)
        else:
            self._wish = wish

    def prepared(self, device: str, message: Prepared, is_at_rest: bool, now: float) -> Iterator[Action]:
        """A participant is ready for the change."""
        change = self.change
        if change is None or message.epoch != change.epoch:
            return
        if change.asked.get(device) != message.incarnation:
            return
        if message.problem is not None:
            self._refused.add(text_of_ring(change.role.placement))
            yield from self.give_up(message.problem.error())
            return
        change.prepared[device] = message
        if change.prepared.keys() != change.asked.keys():
            return
        if change.is_loss or is_at_rest or self.state is State.CLOSING:
            yield from self._commit(change, now)
        elif self.state is State.PREPARING:
            self.state, self._held_since = State.STOPPING, now
            yield Hold(at_once=False)

    def at_rest(self, reached: Sequence[Reached]) -> Iterator[Action]:
        """All requests stand at their step boundaries."""
        if self.state is State.STOPPING and self.change is not None:
            self.state = State.CLOSING
            self.change.prepared.clear()
            yield from self._ask(self.change, reached)

    def give_up(self, error: PartcError) -> Iterator[Action]:
        """The change will not be; the placement in force stays."""
        change, self.change, self.state = self.change, None, State.SETTLED
        if change is None:
            return
        for device in change.asked:
            yield Tell(device, Abort(epoch=change.epoch, problem=Problem.of(error)))
        if change.wish is not None:
            yield refusal(change.wish, error)

    @property
    def is_stopping(self) -> bool:
        """Whether `at_rest` is waited for."""
        return self.state is State.STOPPING

    @property
    def due(self) -> float | None:
        """When `ask_again` and `lose_silent` must be called."""
        heard = () if self.change is None else self.change.heard.values()
        if self.change is None and not self.members.any_suspect:
            return None
        return min([self._asked_at + self.patience_s / 4, *(p.expires(self.patience_s) for p in heard)])

    def ask_again(self, reached: Sequence[Reached], now: float) -> Iterator[Action]:
        """Ask the participants that are not prepared again, and everybody for a sign of life."""
        if now < self._asked_at + self.patience_s / 4:
            return
        self._asked_at = now
        yield Broadcast(Ping())
        if self.change is not None:
            yield from self._ask(self.change, reached)

    def lose_silent(self, now: float) -> bool:
        """Whether participants have been silent for too long; they count as lost."""
        heard = {} if self.change is None else self.change.heard
        silent = {device for device, progress in heard.items() if now >= progress.expires(self.patience_s)}
        self.members.suspect(silent)
        return bool(silent)

    # -- inner workings

    def _stands(self, reached: Sequence[Reached], now: float) -> Iterator[Action]:
        """The placement in force stands: go on with it, or with what was asked for."""
        if self._is_cut_short and reached:
            yield from self._begin(self.role.placement, reached, now, is_loss=True)
            return
        if self.state is State.BROKEN or self._held_since is not None:
            self.state, self._held_since, self._is_cut_short = State.SETTLED, None, False
            yield Mended()
        if self._wish is not None:
            yield from self._begin(self._wish.placement, reached, now, wish=self._wish)

    def _replace(
        self, missing: list[str], forgetful: list[str], reached: Sequence[Reached], now: float
    ) -> Iterator[Action]:
        if missing and not self.members.ever_stood:
            return  # the ring has never stood: they are still starting
        if self._wish is not None:
            yield refusal(self._wish, RunError(f"{(*missing, *forgetful)[0]} was lost", cause="lost-peer"))
            self._wish = None
        tried = (self.role.placement, *self.known)
        found = next((placement for placement in tried if self._can_be(placement)), None)
        if found is not None:
            yield Replaced(tuple(self.members.newly_lost(missing, forgetful)))
            yield from self._begin(found, reached, now, is_loss=True)
        else:
            self.state = State.BROKEN
            yield Broken((*missing, *forgetful))

    def _can_be(self, placement: Placement) -> bool:
        return set(placement.ring) <= self.members.present and text_of_ring(placement) not in self._refused

    def _begin(
        self,
        placement: Placement,
        reached: Sequence[Reached],
        now: float,
        *,
        is_loss: bool = False,
        wish: Wish | None = None,
    ) -> Iterator[Action]:
        self.highest += 1
        self._wish = None
        role = Role(self.role.build, seal_placement(replace(placement, epoch=self.highest)))
        leaving = set(self.role.ring) & self.members.present
        asked = {name: self.members.life(name) for name in sorted({*role.ring, *leaving})}
        heard = {name: Progress(now) for name in asked if name != role.device}
        self._asked_at = now
        self.change, self.state = Change(role, asked, is_loss, wish, heard), State.PREPARING
        if is_loss:
            self._held_since, self._is_cut_short = now, True
            yield Hold(at_once=True)
        yield from self._ask(self.change, reached)

    def _ask(self, change: Change, reached: Sequence[Reached]) -> Iterator[Action]:
        frames = placement_frames(change.role.placement)
        message = Prepare(
            epoch=change.epoch,
            placement=change.role.placement_digest,
            addresses=dict(self.addresses),
            holders=self._holders(change),
            requests=tuple(reached),
            stands_still=change.is_loss or self.state is State.CLOSING,
        )
        for device in sorted(change.asked.keys() - change.prepared.keys()):
            yield Tell(device, message, frames)

    def _holders(self, change: Change) -> dict[str, str]:
        """Sub-module → the device that runs it now, or else keeps a copy of its rows, where that has not forgotten."""
        placement = self.role.placement
        running = ((name, device) for device, names in placement.running.items() for name in names)
        known = {device for device in self.members.present if not self.members.has_forgotten(device)}
        return {name: device for name, device in (*placement.mirrors.items(), *running) if device in known}

    def _commit(self, change: Change, now: float) -> Iterator[Action]:
        self.change, self.state, self.role = None, State.SETTLED, change.role
        stopped_s = 0.0 if self._held_since is None else now - self._held_since
        self._held_since, self._is_cut_short = None, False
        self.members.adopt(change.role, change.asked)
        have = {
            (device, held.request, held.submodule): held
            for device, prepared in change.prepared.items()
            for held in prepared.have
        }
        yield Adopt(change.role, change.asked, have, change.wish, stopped_s)

    def _check(self, placement: Placement) -> None:
        """Raise RunError or BundleError where a placement cannot be gone over to."""
        if self._wish is not None or self.change is not None:
            raise RunError("another change is under way", hint="try again in a while", cause="refused")
        if placement.plan_id != self.role.plan_id or placement.source != self.role.source:
            raise BundleError("the placement is not one of this build, with this source")
        if away := sorted(set(placement.ring) - self.members.present):
            raise RunError(f"{away[0]} is not connected", where=away[0], cause="refused")
        check_role(Role(self.role.build, placement), "placement")
