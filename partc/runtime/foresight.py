"""The headers of the next step, made and checked while this device waits for its messages anyway.

When a step ends, the caches of the processor hold its weights instead of the code that writes and reads headers, which
then takes ten times as long as in a loop. But from token to token a header tells little that is new. So from the last
two of a kind the next one is made ahead, through all checks; when the very same bytes come, there is nothing left to
read. Any other header is read, and written, as if there were no foresight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from partc.errors import RunError
from partc.runtime.wire import Data, Step, encode_data

_KEPT = 256
"""Messages to look back on: more come without a pause only while nobody has time to look ahead."""
Kind = tuple[str, int, tuple[str, ...]]
"""Peer, slot and names of the values: what comes once in every step of a request."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A data message that was checked before it came."""

    peer: str
    data: Data
    sizes: tuple[int, ...]
    """Bytes of each tensor."""


class Foresight:
    """The next header of every kind that comes, and of every kind that goes."""

    def __init__(self, check: Callable[[str, Data], tuple[int, ...]]) -> None:
        """Nothing has come; `check` tells the bytes of each tensor of a message from a peer, or raises RunError."""
        self._check = check
        self._incoming, self._outgoing = _Chains(), _Chains()
        self._coming: dict[Kind, bytes] = {}
        self._foreseen: dict[bytes, Foreseen] = {}
        self._going: dict[Kind, _Going] = {}

    def read(self, peer: str | None, header: bytes) -> Foreseen | None:
        """What a header from a peer says, if it was foreseen."""
        found = self._foreseen.get(header)
        return found if found is not None and found.peer == peer else None

    def came(self, peer: str, data: Data) -> None:
        """Remember a message that was taken."""
        self._incoming.fresh.append((peer, data))

    def header(
        self,
        peer: str,
        step: Step,
        names: tuple[str, ...],
        shapes: Sequence[tuple[int, ...]],
        sender: _Sender,
    ) -> bytes | None:
        """The header of a message that is about to go to a peer, if it was foreseen; it is remembered then."""
        going = self._going.get((peer, step.slot, names))
        if going is None or not going.fits(step, shapes, sender):
            return None
        self._outgoing.fresh.append((peer, going.data))
        return going.header

    def write(self, peer: str, data: Data) -> bytes:
        """The header of any other message to a peer, which is remembered."""
        self._outgoing.fresh.append((peer, data))
        return encode_data(data)

    def look_ahead(self) -> None:
        """Make the headers that follow on what came and went since the last time."""
        for kind, data in self._incoming.following():
            self._foreseen.pop(self._coming.pop(kind, b""), None)
            if data is not None:
                self._foresee(kind, data)
        for kind, data in self._outgoing.following():
            self._going.pop(kind, None)
            if data is not None:
                self._going[kind] = _Going(data, [shape for _, _, shape in data.values], encode_data(data))

    def _foresee(self, kind: Kind, data: Data) -> None:
        try:
            foreseen = Foreseen(kind[0], data, self._check(kind[0], data))
        except RunError:
            return  # there will be no such step
        header = self._coming[kind] = encode_data(data)
        self._foreseen[header] = foreseen


class _Sender(Protocol):
    """What numbers the messages to a peer."""

    session: int
    epoch: int

    @property
    def next_seq(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Going:
    """A message that is expected to go next."""

    data: Data
    shapes: Sequence[tuple[int, ...]]
    header: bytes

    def fits(self, step: Step, shapes: Sequence[tuple[int, ...]], sender: _Sender) -> bool:
        """Whether it is the one that goes."""
        data = self.data
        numbers = data.seq, data.session, data.epoch
        return (
            numbers == (sender.next_seq, sender.session, sender.epoch)
            and data.step == step
            and self.shapes == shapes
        )


@dataclass(slots=True)
class _Chains:
    """The last message of every kind, and all since `following` was asked for."""

    last: dict[Kind, Data] = field(default_factory=dict)
    fresh: deque[tuple[str, Data]] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def following(self) -> Iterator[tuple[Kind, Data | None]]:
        """Of every kind that had a message: the next one, or None where that cannot be said."""
        fresh = {_kind(peer, data): data for peer, data in self.fresh}
        for kind, data in fresh.items():
            before = self.last.get(kind)
            yield kind, None if before is None else _following(before, data)
        self.last.update(fresh)
        self.fresh.clear()


def _kind(peer: str, data: Data) -> Kind:
    return peer, data.step.slot, tuple(name for name, _, _ in data.values)


def _following(before: Data, last: Data) -> Data | None:
    """What comes after the messages of two successive tokens; None for others."""
    old, new = before.step, last.step
    if (new.request, new.step, new.phase, old.phase) != (old.request, old.step + 1, "decode", "decode"):
        return None
    # Requests in flight take turns, so their messages are as far apart as the last two.
    seq = 2 * last.seq - before.seq
    return Data(last.plan, last.epoch, last.session, seq, new.next_token(), last.values)
