"""One request on one device, from its first step to its end.

| state | meaning | left by |
| --- | --- | --- |
| opening | known here; its first step has not begun | `begin`, `deliver` → ready or waiting |
| ready | its program can go on | `advance` → computing, waiting or idle |
| computing | a sub-module or the sampling is under way | `computed` → ready; a newer branch → as below |
| waiting | its program waits for a message | `deliver` of that message → ready |
| idle | all steps so far are over | `begin`, `deliver` → ready or waiting |
| closed | over; whatever still comes is ignored | |

`close` leads from every state to closed. Steps that begin with guesses are under way together (`UnderWay`); ready is a
request of which one can go on. The first row of a newer *branch* tells that the source has taken the request back to
there: all that is under way from there on is void, and what of an older branch still comes for it is ignored. A branch
begins behind a token that the source has, so every device has computed the steps before; some may still be under way
where a device waits for what others share with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_timing
from enum import Enum

import numpy as np

from partc.errors import InternalError, RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Resumption, Reuse, Sampling
from partc.format.program import CHUNK, Message
from partc.runtime.core.actions import Action, Emitted
from partc.runtime.core.device.execution import Execution, Row
from partc.runtime.core.device.script import Script
from partc.runtime.core.device.timings import Timing, by_token
from partc.runtime.core.device.under_way import TOKEN_PHASES, UnderWay
from partc.runtime.core.step import MOST_GUESSED, Step, apart


class State(Enum):
    """State of a request on a device."""

    OPENING = "opening"
    READY = "ready"
    COMPUTING = "computing"
    WAITING = "waiting"
    IDLE = "idle"
    CLOSED = "closed"


@dataclass(slots=True)
class Request:
    """A request as one device knows it."""

    script: Script
    number: int
    slot: int
    sampling: Sampling
    trace: bool
    idle_since: float
    state: State = State.OPENING
    timings: list[Timing] = field(default_factory=list)
    """The steps that are over."""
    steps: int = 0
    """Steps that are over: the rows of all of them are in the states."""
    branch: int = 0
    """The step from which on it was last taken back."""
    _guesses: bool = False
    """Whether the last steps may have taken guesses."""
    _sure: int = 0
    """Steps that are over of which that is known: no token of theirs was a guess, or it was right."""
    _ends: list[tuple[int, ...]] = field(default_factory=list)
    """(batch,) valid tokens after each step of the prompt."""
    _phase: str = ""
    """Phase of the last step."""
    _queued: deque[tuple[Step, Mapping[str, Array]]] = field(default_factory=deque)
    """Steps that begin here when the one before is over."""
    _early: list[tuple[str, Step, Mapping[str, Array]]] = field(default_factory=list)
    """Messages of later steps."""
    _under_way: UnderWay = field(default_factory=UnderWay)
    """The steps under way."""
    _computing: Execution | None = None
    """The one for which the engine works."""
    _mates: Sequence[Request] = ()
    """The other requests of a shared step, in the order of their rows."""
    _reuse: Reuse | None = None
    """Rows of an earlier request that step 0 goes on behind."""
    _kept: Mapping[str, Array] = field(default_factory=dict)
    """Values of the first step that later ones read."""
    _resets: bool = True
    """Whether the next sub-module that runs finds the states of an earlier request."""
    _row: Row = field(init=False)

    def __post_init__(self) -> None:
        self._row = Row(self.slot, self.sampling)

    @classmethod
    def resumed(cls, script: Script, resumption: Resumption, before: Request | None, now: float) -> Request:
        """A request that goes on from some step; `before` is what this device knew of it."""
        request = cls(script, resumption.request, resumption.slot, resumption.sampling, resumption.trace, now)
        request.steps, request._phase = resumption.step, resumption.phase
        request._ends = list(resumption.ends)
        request._resets = resumption.step == 0
        if before is not None:
            request.timings = before.timings[: resumption.step]
            request._kept = before._kept if resumption.step else {}
        return request

    def position(self, step: int) -> tuple[int, ...]:
        """(batch,) valid tokens in the cache before a step that is over, or the next one; () before the first."""
        if step <= len(self._ends):
            return self._ends[step - 1] if step else ()
        return tuple(end + step - len(self._ends) for end in self._ends[-1])

    @property
    def settled(self) -> int:
        """Steps that are over, and will not be taken back: no token of theirs is a guess."""
        return max(self._sure, self.steps - MOST_GUESSED) if self._guesses else self.steps

    def begin_behind(self, reuse: Reuse | None) -> None:
        """Go on behind rows that the slot has, before the first step."""
        self._reuse, self._resets = reuse, reuse is None

    def share(self, step: Step, mates: Sequence[Request]) -> None:
        """Take the other requests of a step that is about to begin here; all of them rest meanwhile.

        Raises:
            RunError: one of them is not at that step.
        """
        for request, own in zip((self, *mates), apart(step), strict=True):
            request._take_back(own)
            if request._under_way:
                message = f"request {request.number} has a step under way, and cannot share one"
                raise RunError(message, cause="refused")
            request._check_follows(own)
        self._mates = mates

    def shares_with(self, number: int) -> bool:
        """Whether it computes a step under way that another request shares."""
        return any(mate.number == number for mate in self._mates)

    @property
    def shares(self) -> bool:
        """Whether the step under way is that of several requests."""
        return bool(self._mates)

    def begin(self, step: Step, inputs: Mapping[str, Array], now: float) -> None:
        """Start a step whose inputs are here (on the source), once the last one is over or leaves room for it.

        Raises:
            RunError: it does not follow the last step.
        """
        self._take_back(step)
        if self._queued or not self._under_way.takes(step):
            self._queued.append((step, inputs))
        else:
            self._start(step, inputs, now)

    def deliver(self, peer: str, step: Step, values: Mapping[str, Array], now: float) -> list[Action]:
        """Take a message; on other devices than the source, the first message of a step starts it.

        Raises:
            RunError: the step does not fit the request, or the message came already.
        """
        if self.is_void(step):
            return []
        self._take_back(step)
        execution = self._under_way.of(step.step)
        if execution is None and self._begins_with(step):
            execution = self._joined(step, now)
        elif execution is None and self._is_early(step):
            self._early.append((peer, step, values))
            return []
        execution = execution or self._first
        under_way = execution.step
        if step is not under_way and not under_way.same_as(step):
            message = f"{peer} is at step {step.step} of request {self.number} with other sizes than here"
            raise RunError(message, cause="refused")
        was_waiting = execution.awaited is not None
        seen = execution.deliver(peer, step, values, now)
        if was_waiting and execution.awaited is None:
            execution.ready_since = now
        self._settle()
        return seen

    def is_void(self, step: Step) -> bool:
        """Whether the request was taken back behind a step since that began."""
        if step.branch >= self.branch:
            return False
        execution = self._under_way.of(step.step)
        return execution is None or execution.step.branch != step.branch

    def advance(self, now: float) -> list[Action]:
        """Go on until something must be computed, a message is missing, or the step is over."""
        execution = self._under_way.able()
        if execution is None:
            self._settle()
            return []
        return self._go_on(execution, now, computes=True)

    def move(self, step: int, now: float) -> list[Action]:
        """Let steps go on to where they need the engine, which works for another one: no token waits for that.

        Those up to the one for which something has come do, in their order.
        """
        actions: list[Action] = []
        for execution in [each for each in self._under_way if each.step.step <= step]:
            if execution is not self._computing and execution.can_go_on:
                actions += self._go_on(execution, now, computes=False)
        return actions

    def computed(self, values: Sequence[Array], seconds: float, now: float) -> None:
        """Take the result that `advance` asked for."""
        execution, self._computing = self._computing, None
        if execution is None:
            raise InternalError(f"request {self.number} computes nothing")
        execution.computed(values, seconds)
        execution.ready_since = now
        if execution.awaited is not None:
            execution.waiting_since = now
        self._settle()

    def close(self) -> None:
        """End, wherever it is."""
        self.state, self._computing = State.CLOSED, None
        self._under_way.drop()
        self._mates = ()
        self._queued.clear()
        self._early.clear()

    def waits_for(self) -> tuple[int, Message] | None:
        """(step, message) that it waits for."""
        execution = self._under_way.first
        if execution is None or self.state is not State.WAITING:
            return None
        awaited = execution.awaited
        return None if awaited is None else (execution.step.step, awaited)

    @property
    def works_at(self) -> tuple[str, str]:
        """(sub-module or `sample`, phase) of what is computed; empty for several tokens, whose time is of no phase."""
        execution = self._computing
        if execution is None or execution.step.further:
            return "", ""
        return execution.works_at, execution.step.phase

    def begun(self, submodule: str) -> int:
        """Steps under way that have run a sub-module, or run it."""
        return sum(
            each.has_begun(submodule, is_computing=each is self._computing) for each in self._under_way
        )

    @property
    def began_s(self) -> float:
        """When the earliest step under way that can go on began."""
        return self._known(self._under_way.able()).timing.started_s

    # -- inner workings

    @property
    def _first(self) -> Execution:
        return self._known(self._under_way.first)

    def _known(self, execution: Execution | None) -> Execution:
        if execution is None:
            raise InternalError(f"request {self.number} has no step under way")
        return execution

    def _go_on(self, execution: Execution, now: float, *, computes: bool) -> list[Action]:
        actions: list[Action] = []
        execution.timing.queue_s += now - execution.ready_since
        if execution.advance(actions, computes=computes):
            self._computing, self.state = execution, State.COMPUTING
            return actions
        execution.ready_since = now  # the engine works for another step
        if execution.is_over:
            actions += self._finish(now)
        elif execution.awaited is not None:
            execution.waiting_since = now
        self._settle()
        return actions

    def _settle(self) -> None:
        """Find out in which state it is, unless something is computed."""
        if self._computing is not None:
            return
        if not self._under_way:
            self.state = State.IDLE
        else:
            self.state = State.WAITING if self._under_way.able() is None else State.READY

    def _take_back(self, step: Step) -> None:
        """Let go of what a newer branch has made void: all steps from its first row on.

        What the engine computes for it goes on, but nothing follows from it.
        """
        if step.branch <= self.branch:
            return
        self.branch = step.branch
        self._under_way.drop(step.branch)
        self._queued.clear()
        self._early = [each for each in self._early if each[1].step < step.branch]
        if not any(each is self._computing for each in self._under_way):
            self._computing = None
        if not self._under_way:
            self._mates = ()
        void = self.steps - min(self.steps, step.branch)
        self.steps -= void
        del self.timings[len(self.timings) - void :]
        self._sure = self.steps
        self._settle()

    def _begins_with(self, step: Step) -> bool:
        """Whether a message is the first of a step that may begin now."""
        if not self._under_way:
            return True
        follows = step.step == self.steps + self._under_way.tokens
        return follows and not self.script.role.is_source and self._under_way.takes(step)

    def _joined(self, step: Step, now: float) -> Execution:
        """The step that a message is the first to tell of."""
        if step.step < self.steps:
            raise RunError(f"step {step.step} of request {self.number} is over", cause="refused")
        if self.script.role.is_source:
            raise RunError(f"step {step.step} of request {self.number} has not begun", cause="refused")
        return self._start(step, {}, now)

    def _start(self, step: Step, inputs: Mapping[str, Array], now: float) -> Execution:
        self._check_follows(step)
        self._phase = step.phase
        if step.busy_s is not None and not self._guesses:
            self._sure = self.steps
        self._guesses = step.busy_s is not None
        number = max(0, step.step + 1 - len(self._ends)) if step.phase in TOKEN_PHASES else 0
        is_alone = not self._under_way
        execution = Execution(
            self.script,
            step,
            [*[self._row] * (1 + step.further), *(mate._row for mate in self._mates)],
            self.trace,
            {**self._step_inputs(step), **self._kept, **inputs},
            Timing(self.number, number, started_s=now, epoch=self.script.role.epoch),
            self._resets,
        )
        self._under_way.add(execution)
        if execution.awaited is None:
            execution.ready_since = now
        else:
            # What came before the first message of a step was waiting for it, but for a request's very first.
            execution.waiting_since = self.idle_since if step.step and is_alone else now
        self._settle()
        return execution

    def _check_follows(self, step: Step) -> None:
        """Hold the first row of a step against the steps before; raises RunError."""
        following = self.steps + self._under_way.tokens
        position = step.position[:1] if step.rows > 1 else step.position
        fits = step.step == following and position == self._position_of(step)
        in_turn = (step.phase in TOKEN_PHASES) == (self._phase not in ("", CHUNK))
        if not (fits and step.slot == self.slot and in_turn):
            message = f"step {step.step} of request {self.number} does not follow its step {following - 1}"
            raise RunError(message, cause="refused")

    def _position_of(self, step: Step) -> tuple[int, ...]:
        """Where the next step of this request must begin; the first may begin anywhere, unless rows are kept."""
        if step.step:
            return self.position(step.step)
        return step.position if self._reuse is None else (self._reuse.rows,)

    def _step_inputs(self, step: Step) -> dict[str, Array]:
        if not self.script.role.has_step_inputs:
            return {}
        return {
            "position": np.array(step.position, np.int64),
            "length": np.array(step.length, np.int64),
            "index": np.arange(step.dims.get("sequence", 1), dtype=np.int64),
        }

    def _finish(self, now: float) -> list[Action]:
        """The earliest step is over; what it emits goes out last, since the request's next step begins with it."""
        execution = self._under_way.end_first()
        step = execution.step
        self.timings += by_token(execution.timing, execution.tokens)
        self.idle_since = now
        self._resets, self.steps = execution.resets, step.step + execution.tokens
        if execution.kept is not None:
            self._kept = execution.kept
        for mate, own in zip(self._mates, step.others, strict=True):
            mate._shared(own.step, execution.timing, now)
        self._mates = ()
        if step.phase in ("prefill", CHUNK):
            self._ends.append(step.end)
        while self._queued and self._under_way.takes(self._queued[0][0]):
            self._start(*self._queued.popleft(), now)
        actions: list[Action] = []
        early, self._early = self._early, []
        for peer, following, values in early:
            actions += self.deliver(peer, following, values, now)
        if execution.emitted:
            actions.append(Emitted(execution.as_told, execution.emitted))
        return actions

    def _shared(self, step: int, timing: Timing, now: float) -> None:
        """A step is over that another request has computed for this one, too; each counts all of its time."""
        self.timings.append(
            replace_timing(timing, request=self.number, step=max(0, step + 1 - len(self._ends)))
        )
        self.steps, self._phase, self.idle_since = step + 1, "decode", now

    def _is_early(self, step: Step) -> bool:
        """Whether a message belongs to a later step that may be known already."""
        ahead = step.step - self._first.step.step
        return 0 < ahead <= self.script.most_steps and len(self._early) < self.script.most_early
