"""One request on one device, from its first step to its end.

| state | meaning | left by |
| --- | --- | --- |
| opening | known here; its first step has not begun | `begin`, `deliver` → ready or waiting |
| ready | its program can go on | `advance` → computing, waiting or idle |
| computing | a sub-module or the sampling is under way | `computed` → ready |
| waiting | its program waits for a message | `deliver` of that message → ready |
| idle | all steps so far are over | `begin`, `deliver` → ready or waiting |
| closed | over; whatever still comes is ignored | |

`close` leads from every state to closed.
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
from partc.format.program import CHUNK, REPLAY, Message
from partc.runtime.core.actions import Action, Emitted
from partc.runtime.core.device.execution import Execution, Row
from partc.runtime.core.device.script import Script
from partc.runtime.core.device.timings import Timing
from partc.runtime.core.step import Step, apart


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
    _ends: list[tuple[int, ...]] = field(default_factory=list)
    """(batch,) valid tokens after each step of the prompt."""
    _phase: str = ""
    """Phase of the last step."""
    _queued: deque[tuple[Step, Mapping[str, Array]]] = field(default_factory=deque)
    """Steps that begin here when the one before is over."""
    _early: list[tuple[str, Step, Mapping[str, Array]]] = field(default_factory=list)
    """Messages of later steps."""
    _execution: Execution | None = None
    """The step under way."""
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

    def begin_behind(self, reuse: Reuse | None) -> None:
        """Go on behind rows that the slot has, before the first step."""
        self._reuse, self._resets = reuse, reuse is None

    def share(self, step: Step, mates: Sequence[Request]) -> None:
        """Take the other requests of a step that is about to begin here; all of them rest meanwhile.

        Raises:
            RunError: one of them is not at that step.
        """
        for request, own in zip((self, *mates), apart(step), strict=True):
            if request._execution is not None:
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
        """Start a step whose inputs are here (on the source), once the last one is over.

        Raises:
            RunError: it does not follow the last step.
        """
        if self._execution is not None:
            self._queued.append((step, inputs))
        else:
            self._start(step, inputs, now)

    def deliver(self, peer: str, step: Step, values: Mapping[str, Array], now: float) -> list[Action]:
        """Take a message; on other devices than the source, the first message of a step starts it.

        Raises:
            RunError: the step does not fit the request, or the message came already.
        """
        execution = self._execution or self._joined(step, now)
        under_way = execution.step
        if step.step != under_way.step and self._is_early(step, under_way):
            self._early.append((peer, step, values))
            return []
        if step is not under_way and not under_way.same_as(step):
            message = f"{peer} is at step {step.step} of request {self.number} with other sizes than here"
            raise RunError(message, cause="refused")
        seen = execution.deliver(peer, step, values, now)
        if self.state is State.WAITING and execution.awaited is None:
            self.state, execution.ready_since = State.READY, now
        return seen

    def advance(self, now: float) -> list[Action]:
        """Go on until something must be computed, a message is missing, or the step is over."""
        execution, actions = self._under_way, list[Action]()
        execution.timing.queue_s += now - execution.ready_since
        if execution.advance(actions):
            self.state = State.COMPUTING
        elif execution.is_over:
            actions += self._finish(execution, now)
        else:
            self.state, execution.waiting_since = State.WAITING, now
        return actions

    def computed(self, values: Sequence[Array], seconds: float, now: float) -> None:
        """Take the result that `advance` asked for."""
        execution = self._under_way
        execution.computed(values, seconds)
        self.state, execution.ready_since = State.READY, now

    def close(self) -> None:
        """End, wherever it is."""
        self.state = State.CLOSED
        if self._execution is not None:
            self._execution.drop()
        self._mates = ()
        self._queued.clear()
        self._early.clear()

    def waits_for(self) -> tuple[int, Message] | None:
        """(step, message) that it waits for."""
        if self._execution is None or self.state is not State.WAITING:
            return None
        awaited = self._execution.awaited
        return None if awaited is None else (self._execution.step.step, awaited)

    @property
    def works_at(self) -> tuple[str, str]:
        """(sub-module or `sample`, phase) of what is computed."""
        return self._under_way.works_at, self._phase

    def has_begun(self, submodule: str) -> bool:
        """Whether the step under way has run a sub-module, or runs it."""
        is_computing = self.state is State.COMPUTING
        return self._execution is not None and self._execution.has_begun(submodule, is_computing=is_computing)

    @property
    def began_s(self) -> float:
        """When the step under way began."""
        return self._under_way.timing.started_s

    # -- inner workings

    @property
    def _under_way(self) -> Execution:
        if self._execution is None:
            raise InternalError(f"request {self.number} has no step under way")
        return self._execution

    def _joined(self, step: Step, now: float) -> Execution:
        """The step that a message is the first to tell of."""
        if step.step < self.steps:
            raise RunError(f"step {step.step} of request {self.number} is over", cause="refused")
        if self.script.role.is_source:
            raise RunError(f"step {step.step} of request {self.number} has not begun", cause="refused")
        return self._start(step, {}, now)

    def _start(self, step: Step, inputs: Mapping[str, Array], now: float) -> Execution:
        self._check_follows(apart(step)[0])
        self._phase = step.phase
        number = max(0, step.step + 1 - len(self._ends)) if step.phase in ("decode", REPLAY) else 0
        execution = self._execution = Execution(
            self.script,
            step,
            [self._row, *(mate._row for mate in self._mates)] if self._mates else (self._row,),
            self.trace,
            {**self._step_inputs(step), **self._kept, **inputs},
            Timing(self.number, number, started_s=now, epoch=self.script.role.epoch),
            self._resets,
        )
        if execution.awaited is None:
            self.state, execution.ready_since = State.READY, now
        else:
            # What came before the first message of a step was waiting for it, but for a request's very first.
            self.state, execution.waiting_since = State.WAITING, self.idle_since if step.step else now
        return execution

    def _check_follows(self, step: Step) -> None:
        """Hold a step of this request alone against those before; raises RunError."""
        fits = step.step == self.steps and step.position == self._position_of(step)
        in_turn = (step.phase in ("decode", REPLAY)) == (self._phase not in ("", CHUNK))
        if not (fits and step.slot == self.slot and in_turn):
            message = f"step {step.step} of request {self.number} does not follow its step {self.steps - 1}"
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

    def _finish(self, execution: Execution, now: float) -> list[Action]:
        """The step is over; what it emits goes out last, since the request's next step begins with it."""
        step = execution.step
        self.timings.append(execution.timing)
        self._execution, self.state, self.idle_since = None, State.IDLE, now
        self._resets, self.steps = execution.resets, step.step + 1
        if execution.kept is not None:
            self._kept = execution.kept
        for mate, own in zip(self._mates, step.others, strict=True):
            mate._shared(own.step, execution.timing, now)
        self._mates = ()
        if step.phase in ("prefill", CHUNK):
            self._ends.append(step.end)
        if self._queued:
            self._start(*self._queued.popleft(), now)
        actions: list[Action] = []
        early, self._early = self._early, []
        for peer, following, values in early:
            actions += self.deliver(peer, following, values, now)
        if execution.emitted:
            actions.append(Emitted(step, execution.emitted))
        return actions

    def _shared(self, step: int, timing: Timing, now: float) -> None:
        """A step is over that another request has computed for this one, too; each counts all of its time."""
        self.timings.append(
            replace_timing(timing, request=self.number, step=max(0, step + 1 - len(self._ends)))
        )
        self.steps, self._phase, self.idle_since = step + 1, "decode", now

    def _is_early(self, step: Step, under_way: Step) -> bool:
        """Whether a message belongs to a later step that may be known already."""
        ahead = step.step - under_way.step
        return 0 < ahead <= self.script.most_steps and len(self._early) < self.script.most_early
