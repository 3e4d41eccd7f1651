"""The core of a link between two devices, free of I/O and of clocks.

One link carries frames one way; acknowledgements come back. The sender numbers its frames and keeps them
until they are acknowledged; the receiver hands every frame on exactly once and in order, however often the
network loses, repeats or reorders them. Two numbers guard against ghosts:

- `epoch` belongs to the plan in force. A re-plan raises it; frames of an older one are dropped.
- `session` belongs to one life of the sender's end. A device that starts again counts from 0 in a new
session;
  frames of a session that the receiver has not been told of (`open`) are dropped.

```
sender    push ──> [buffer] ──> network ;  acknowledge(n) drops all below n ;  unacknowledged() to send again
receiver  network ──> accept ──> frames in order ;  acknowledgement() = the next number it waits for
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from partc.errors import RunError

T = TypeVar("T")

LEAST_PATIENCE_S = 5.0
"""The shortest time without progress after which a peer counts as gone, seconds."""
PLANNED_PROMPT_TOKENS = 32.0
"""The prompt that a prediction is for where the manifest does not say, tokens."""
PATIENCE_FACTOR = 4.0
"""How often the expected time of a step may pass before that."""


class Sender(Generic[T]):
    """The sending end: numbers frames and keeps them until they are acknowledged."""

    def __init__(self, capacity: int, session: int, epoch: int = 0) -> None:
        self._capacity = capacity
        self.restart(session, epoch)

    def restart(self, session: int, epoch: int = 0) -> None:
        """Forget all frames and count from 0 again, in a new session or epoch."""
        self.session = session
        self.epoch = epoch
        self._first = 0
        self._frames: list[T] = []

    @property
    def next_seq(self) -> int:
        """The number that the next frame will have."""
        return self._first + len(self._frames)

    def push(self, frame: T) -> int:
        """Keep a frame that is about to be sent; its number.

        Raises:
            RunError: the buffer is full, so the receiver has stopped acknowledging.
        """
        if len(self._frames) >= self._capacity:
            raise RunError(f"{self._capacity} messages were sent without an acknowledgement")
        self._frames.append(frame)
        return self.next_seq - 1

    def acknowledge(self, session: int, epoch: int, next_seq: int) -> None:
        """The receiver has everything below `next_seq`; what is old or foreign changes nothing.

        Raises:
            RunError: it acknowledges what was never sent.
        """
        if (session, epoch) != (self.session, self.epoch):
            return
        if next_seq > self.next_seq:
            raise RunError(f"message {next_seq - 1} is acknowledged, but was never sent")
        if next_seq > self._first:
            del self._frames[: next_seq - self._first]
            self._first = next_seq

    def unacknowledged(self) -> Iterator[tuple[int, T]]:
        """The frames to send again after a break, with their numbers."""
        return enumerate(list(self._frames), start=self._first)


class Receiver(Generic[T]):
    """The receiving end: hands on every frame once, in order."""

    def __init__(self, plan: bytes, epoch: int, window: int) -> None:
        self._plan = plan
        self._window = window
        self.session: int | None = None
        self.restart(epoch)

    def restart(self, epoch: int) -> None:
        """Take up a new epoch; what is held of the old one is forgotten."""
        self.epoch = epoch
        self._next = 0
        self._held: dict[int, T] = {}

    def open(self, session: int) -> None:
        """The sender begins a session; the one in force goes on where it was."""
        if session != self.session:
            self.session = session
            self.restart(self.epoch)

    def accept(self, plan: bytes, epoch: int, session: int, seq: int, frame: T) -> list[T]:
        """Take a frame from the network; the frames that may be handed on now, in order.

        Raises:
            RunError: the frame belongs to another plan, or lies beyond the window.
        """
        if plan != self._plan:
            raise RunError(
                f"a message of another build (plan {plan.hex()[:12]}, here {self._plan.hex()[:12]})",
                hint="copy the folders of one build to all devices",
            )
        if epoch != self.epoch or session != self.session or seq < self._next:
            return []
        if seq >= self._next + self._window:
            raise RunError(f"message {seq} came while {self._next} was awaited: out of the window")
        self._held.setdefault(seq, frame)
        return list(self._in_order())

    def acknowledgement(self) -> int:
        """Everything below this number has been handed on."""
        return self._next

    def _in_order(self) -> Iterator[T]:
        while self._next in self._held:
            yield self._held.pop(self._next)
            self._next += 1


def patience_s(predicted_s: float, floor_s: float = LEAST_PATIENCE_S, slowest_s: float = 0.0) -> float:
    """Seconds that a step may go without progress: max(floor, 4 × predicted, 4 × the slowest so far)."""
    return max(floor_s, PATIENCE_FACTOR * predicted_s, PATIENCE_FACTOR * slowest_s)


def step_s(predicted: Mapping[str, float], phase: str, rows: int, tokens: int) -> float:
    """The predicted seconds of a step of `rows` sequences with `tokens` new tokens each.

    The prediction is for one sequence, and for a prompt as long as the workload's (`prefill_tokens`); a larger step
    takes at most in proportion longer, but for attention, which the factor of the patience covers.
    """
    planned = predicted.get("prefill_tokens", PLANNED_PROMPT_TOKENS) if phase == "prefill" else 1.0
    return predicted.get(f"{phase}_s", 0.0) * max(1.0, rows * tokens / max(1.0, planned))


@dataclass(slots=True)
class Progress:
    """When something last moved, on a clock that the caller reads."""

    since: float
    """Seconds on the caller's clock."""

    def moved(self, now: float) -> None:
        """Something moved."""
        self.since = now

    def silent_s(self, now: float) -> float:
        """Seconds since then."""
        return now - self.since

    def expires(self, patience: float) -> float:
        """When the patience ends, on the caller's clock."""
        return self.since + patience
