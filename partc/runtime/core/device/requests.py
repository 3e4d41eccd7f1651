"""All requests of one device, and which of them goes on next.

A program runs once per (request, step), and none waits for another: whichever can go on does, the oldest step first.
So requests in flight fill each other's waiting times (EdgeShard's pipeline without bubbles). The device computes one
sub-module at a time, and the step that it belongs to goes on before any other.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Held, Resumption
from partc.runtime.core.actions import Action, Failed
from partc.runtime.core.device.request import Request, State
from partc.runtime.core.device.script import Script
from partc.runtime.core.device.timings import Timing, whole_steps
from partc.runtime.core.step import Step

_KEPT_NUMBERS = 256


@dataclass(slots=True)
class Requests:
    """The requests of one device."""

    script: Script
    next_request: int = 0
    """Every request that this device was ever told of has a lower number."""
    first_request: int = 0
    """Requests below this number are over."""
    opens: bool = True
    """Whether requests may begin. Links repeat what was lost with a former life of this device, and only the source's
    welcome tells which requests that belongs to; it begins no new ones before."""
    _open: dict[int, Request] = field(default_factory=dict)
    _slots: dict[int, int] = field(default_factory=dict)
    """Slot → the last request that had it."""
    _overtaken: dict[int, Request] = field(default_factory=dict)
    """Slot → the request before that, where its end has not been told of: it travels on another connection."""
    _closed: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT_NUMBERS))
    _ready: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (when its step began, number) of requests that can go on."""
    _halted: frozenset[int] = frozenset()
    """Requests that compute nothing for now."""
    _computing: Request | None = None
    _works_at: tuple[str, str] = ("", "")
    """(sub-module or `sample`, phase) of the last computation."""

    @property
    def computing(self) -> int | None:
        """The request that the engine works for; None: it rests."""
        return None if self._computing is None else self._computing.number

    def resume(self, script: Script, resumptions: Iterable[Resumption], now: float) -> None:
        """Another placement is in force: these requests go on in it, from where it says; all others are over.

        The computation under way goes on, but nothing follows from it.
        """
        self.script = script
        kept = {each.request: each for each in resumptions}
        before = {number: self._open[number] for number in kept if number in self._open}
        self.close_all()
        self._ready.clear()
        self._halted = frozenset()
        for number, each in kept.items():
            self._open[number] = Request.resumed(script, each, before.get(number), now)
            self._slots[each.slot] = number
            self.next_request = max(self.next_request, number + 1)
            if number in self._closed:
                self._closed.remove(number)

    @property
    def numbers(self) -> list[int]:
        """The requests that are open here."""
        return list(self._open)

    def in_slot(self, slot: int) -> int | None:
        """The request that is open in a slot."""
        number = self._slots.get(slot, -1)
        return number if number in self._open else None

    def request(self, number: int) -> Request | None:
        """A request that is open here."""
        return self._open.get(number)

    def halt(self, numbers: Iterable[int]) -> None:
        """These requests compute nothing more, and all others go on: what is said of states stays true meanwhile."""
        self._halted = frozenset(numbers)
        ready = [request for request in self._open.values() if request.state is State.READY]
        self._ready = sorted((request.began_s, request.number) for request in ready)

    def held(self, submodules: Sequence[str]) -> Iterator[Held]:
        """The watermarks of sub-modules that this device runs."""
        role = self.script.role
        for number, request in self._open.items():
            for name in submodules if request.steps else ():
                yield Held(number, name, self.steps_in(number, name), role.keeps or role.rewrites(name))

    def steps_in(self, number: int, submodule: str) -> int:
        """Steps of an open request that the states of a sub-module have seen.

        A step that is not over counts where it rewrites them; rows that it writes are written again later.
        """
        steps = self._open[number].steps
        if not self.script.role.rewrites(submodule):
            return steps
        leaders = (each for each in self._open.values() if each.number == number or each.shares_with(number))
        return steps + sum(each.begun(submodule) for each in leaders)

    @property
    def works_at(self) -> tuple[str, str]:
        """(sub-module or `sample`, phase) of what the engine computes; empty texts: it rests, or several tokens."""
        return ("", "") if self._computing is None else self._works_at

    @property
    def in_flight(self) -> int:
        """Requests that are open."""
        return len(self._open)

    @property
    def queue(self) -> int:
        """Requests that could go on, and wait for the engine."""
        return sum(request.state is State.READY for request in self._open.values())

    def begin(self, step: Step, inputs: Mapping[str, Array], now: float) -> list[Action]:
        """Start a step whose inputs are here (on the source), once the request's last one is over here."""
        try:
            request = self._open.get(step.request) or self._admit(step, now)
            self._gather(request, step)
            before = request.state
            request.begin(step, inputs, now)
        except RunError as error:
            return [Failed(step.request, error)]
        self._noted(request, before)
        return []

    def deliver(self, peer: str, step: Step, values: Mapping[str, Array], now: float) -> list[Action]:
        """Take a message; messages of a request that is over are ignored.

        At the source no message is the first: one that tells of an unknown request was for its former life.
        """
        request = self._open.get(step.request)
        try:
            if request is None:
                if not self.opens or step.opening is None or self._is_over(step):
                    return []
                request = self._admit(step, now)
            if not self._gather(request, step):
                return []
            before = request.state
            actions = request.deliver(peer, step, values, now)
            if self._computing is not None and request.number not in self._halted:
                actions += request.move(step.step, now)
        except RunError as error:
            error.where = error.where or f"{peer} -> {self.script.role.device}"
            return [Failed(step.request, error)]
        self._noted(request, before)
        return actions

    def advance(self, now: float) -> list[Action]:
        """Let the oldest step that can go on do so, until the device computes or every step waits."""
        actions: list[Action] = []
        while self._ready and self._computing is None:
            _, number = heapq.heappop(self._ready)
            request = self._open.get(number)
            if request is not None and request.state is State.READY and number not in self._halted:
                actions += self._advance(request, now)
        return actions

    def computed(self, values: Sequence[Array], seconds: float, now: float) -> list[Action]:
        """Take the result of a computation; its step goes on at once."""
        request, self._computing = self._computing, None
        if request is None or request.state is not State.COMPUTING:
            return []
        request.computed(values, seconds, now)
        return [] if request.number in self._halted else self._advance(request, now)

    def failed(self, error: PartcError) -> list[Action]:
        """End the request whose computation failed."""
        request, self._computing = self._computing, None
        if request is None or request.state is not State.COMPUTING:
            return []
        return [Failed(request.number, error)]

    def close(self, number: int) -> list[Timing]:
        """End a request, wherever it is; its steps so far. Unknown requests are ignored."""
        self.next_request = max(self.next_request, number + 1)
        self._closed.append(number)
        request = self._open.pop(number, None)
        self._drop_shared(number)
        if request is not None:
            request.close()
            return whole_steps(request.timings)
        return self._steps_of_overtaken(number)

    def close_failed(self, failed: Failed) -> None:
        """End every request that a failure concerns."""
        for number in filter(failed.concerns, list(self._open)):
            self.close(number)

    def close_below(self, number: int) -> None:
        """End every request of a lower number, those included that this device will be told of later."""
        self.first_request = max(self.first_request, number)
        self.next_request = max(self.next_request, number)
        for each in [each for each in self._open if each < number]:
            self.close(each)

    def close_all(self) -> None:
        """End every request."""
        for number in list(self._open):
            self.close(number)

    def doing(self) -> str:
        """The messages that the steps under way wait for."""
        if self._computing is not None:
            return f"computes for request {self._computing.number}"
        waits = [
            f"waits for {', '.join(found[1].values)} from {found[1].device} (step {found[0]})"
            for _, request in sorted(self._open.items())
            if (found := request.waits_for()) is not None
        ]
        return "; ".join(waits) or "idle"

    def _advance(self, request: Request, now: float) -> list[Action]:
        try:
            actions = request.advance(now)
        except RunError as error:
            return [Failed(request.number, error)]
        if request.state is State.COMPUTING:
            self._computing, self._works_at = request, request.works_at
        else:
            self._noted(request, State.IDLE)
        return actions

    def _noted(self, request: Request, before: State) -> None:
        """Remember a request that has got ready."""
        if request.state is State.READY and before is not State.READY:
            heapq.heappush(self._ready, (request.began_s, request.number))

    def _admit(self, step: Step, now: float) -> Request:
        """Open the request of a step 0.

        Raises:
            RunError: the step opens no request.
        """
        if step.opening is None:
            message = f"step {step.step} of request {step.request} does not open it"
            raise RunError(message, cause="refused")
        opening, reuse = step.opening, step.opening.reuse
        if reuse is not None and self._slots.get(step.slot) != reuse.request:
            raise RunError(
                f"the rows of request {reuse.request} are not in slot {step.slot}", cause="refused"
            )
        self._overtake(step.slot)
        request = Request(self.script, step.request, step.slot, opening.sampling, opening.trace, now)
        request.begin_behind(reuse)
        self._open[step.request] = request
        self._slots[step.slot] = step.request
        self.next_request = max(self.next_request, step.request + 1)
        return request

    def _gather(self, request: Request, step: Step) -> bool:
        """Bring the requests of a shared step together before it begins; whether all of them are open.

        Raises:
            RunError: one of them is not at that step.
        """
        mates = [self._open.get(member.request) for member in step.others]
        if None in mates:
            return False
        if mates and not request.shares:
            request.share(step, [mate for mate in mates if mate is not None])
        return True

    def _drop_shared(self, number: int) -> None:
        """End a request whose step under way an ended one shares: the source ends one of them with all others only.

        Its rows would be written into the slot of a later request.
        """
        for leader in [request for request in self._open.values() if request.shares_with(number)]:
            self._open.pop(leader.number).close()

    def _overtake(self, slot: int) -> None:
        """End the request that has a slot; its timings are kept until its end is told of."""
        request = self._open.pop(self._slots.get(slot, -1), None)
        if request is not None:
            self._drop_shared(request.number)
            request.close()
            self._overtaken[slot] = request

    def _steps_of_overtaken(self, number: int) -> list[Timing]:
        for slot, request in self._overtaken.items():
            if request.number == number:
                return whole_steps(self._overtaken.pop(slot).timings)
        return []

    def _is_over(self, step: Step) -> bool:
        """Whether a message is late: on another link, the end of its request may have overtaken it."""
        first = max(self.first_request, self._slots.get(step.slot, 0))
        return step.request < first or step.request in self._closed
