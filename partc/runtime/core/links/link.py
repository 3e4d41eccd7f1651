"""A link between two devices: every frame once and in order, whatever the network loses, repeats or reorders.

One link carries frames one way; acknowledgements come back. The sender numbers its frames and keeps them until they
are acknowledged. Two numbers keep out frames of the past:

- `epoch` belongs to the placement in force. A change raises it. Frames of an older one are dropped; those of the one
  that is prepared (`expect`) wait for it, and those of any other are dropped, to be sent again after `hello`.
- `session` belongs to one life of the sender's end. A device that starts again counts from 0 in a new session; frames
  of a session that the receiver has not been told of (`open`) are dropped.

```
sender    push ──> [buffer] ──> network ;  acknowledge(n) drops all below n ;  unacknowledged() are sent again
receiver  network ──> accept ──> frames in order ;  acknowledgement() = the next number it waits for
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from partc.errors import RunError

T = TypeVar("T")
_MOST_FORMER = 64


class Sender(Generic[T]):
    """The sending end: numbers frames and keeps them until they are acknowledged."""

    def __init__(self, capacity: int, session: int, epoch: int = 0) -> None:
        self._capacity = capacity
        self.restart(session, epoch)

    def restart(self, session: int, epoch: int = 0, capacity: int | None = None) -> None:
        """Forget all frames and count from 0 again, in a new session or epoch."""
        self._capacity = capacity or self._capacity
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
            message = f"{self._capacity} messages were sent without an acknowledgement"
            raise RunError(message, cause="stalled")
        self._frames.append(frame)
        return self.next_seq - 1

    def acknowledge(self, session: int, epoch: int, next_seq: int) -> None:
        """The receiver has everything below `next_seq`; acknowledgements of other sessions and epochs are ignored.

        Raises:
            RunError: it acknowledges what was never sent.
        """
        if (session, epoch) != (self.session, self.epoch):
            return
        if next_seq > self.next_seq:
            raise RunError(f"message {next_seq - 1} is acknowledged, but was never sent", cause="refused")
        if next_seq > self._first:
            del self._frames[: next_seq - self._first]
            self._first = next_seq

    def can_resume(self, next_seq: int) -> bool:
        """Whether a receiver that awaits `next_seq` can be sent all that it is missing."""
        return self._first <= next_seq <= self.next_seq

    def unacknowledged(self) -> Iterator[tuple[int, T]]:
        """The frames to send again after a break, with their numbers."""
        return enumerate(list(self._frames), start=self._first)


class Receiver(Generic[T]):
    """The receiving end: hands on every frame once, in order."""

    def __init__(self, epoch: int, window: int) -> None:
        self.session: int | None = None
        self.epoch = epoch
        self._window = window
        self._next = 0
        self._held: dict[int, T] = {}
        self._following: tuple[int, int] | None = None
        """Epoch that is prepared, and its window."""
        self._early: dict[int, T] = {}
        """Frames of that epoch."""
        self._former: dict[int, int] = {}
        """Session that another one followed → the number that it waits for, in this epoch; the last ones."""

    def open(self, session: int) -> None:
        """The sender begins a session; one that was in force before goes on where it was."""
        if session == self.session:
            return
        if self.session is not None:
            self._former[self.session] = self._next
        if len(self._former) > _MOST_FORMER:
            del self._former[next(iter(self._former))]
        self.session = session
        self._next, self._held, self._early = self._former.pop(session, 0), {}, {}

    def expect(self, epoch: int, window: int) -> None:
        """A change to this epoch is prepared: its frames are kept until `restart`."""
        self._following, self._early = (epoch, window), {}

    def restart(self) -> list[T]:
        """The epoch that is prepared is in force; the frames of it that may be handed on now, in order."""
        if self._following is not None:
            self.epoch, self._window = self._following
            self._next, self._held = 0, self._early
            self._following, self._early = None, {}
            self._former.clear()
        return list(self._in_order())

    def accept(self, epoch: int, session: int, seq: int, frame: T) -> list[T]:
        """Take a frame from the network; the frames that may be handed on now, in order.

        Raises:
            RunError: the frame lies beyond the window.
        """
        if session != self.session:
            return []
        if self._following is not None and epoch == self._following[0]:
            self._keep(self._early, 0, self._following[1], seq, frame)
            return []
        if epoch != self.epoch or seq < self._next:
            return []
        self._keep(self._held, self._next, self._window, seq, frame)
        return list(self._in_order())

    def acknowledgement(self) -> int:
        """Everything below this number has been handed on."""
        return self._next

    @staticmethod
    def _keep(frames: dict[int, T], first: int, window: int, seq: int, frame: T) -> None:
        if seq >= first + window:
            message = f"message {seq} came while {first} was awaited: out of the window"
            raise RunError(message, cause="refused")
        frames.setdefault(seq, frame)

    def _in_order(self) -> Iterator[T]:
        while self._next in self._held:
            yield self._held.pop(self._next)
            self._next += 1
