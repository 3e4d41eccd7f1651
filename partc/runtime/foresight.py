"""The headers of the next step, made and checked while this device waits for its messages anyway.

When a step ends, the caches of the processor hold its weights instead of the code that writes and reads headers, which
then takes ten times as long as in a loop. But from token to token a header tells little that is new. So from the last
two of a kind the next one is made ahead, through all checks; when the very same bytes come, there is nothing left to
read. Any other header is read, and written, as if there were no foresight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from partc.errors import RunError
from partc.runtime.wire import Data, Step, encode_data

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
        self._going: dict[Kind, tuple[Data, bytes]] = {}

    def read(self, peer: str | None, header: bytes) -> Foreseen | None:
        """What a header from a peer says, if it was foreseen."""
        found = self._foreseen.get(header)
        return found if found is not None and found.peer == peer else None

    def came(self, peer: str, data: Data) -> None:
        """Remember a message that was taken."""
        self._incoming.fresh[_kind(peer, data)] = data

    def write(self, peer: str, data: Data) -> bytes:
        """The header of a message to a peer, which is remembered."""
        kind = _kind(peer, data)
        self._outgoing.fresh[kind] = data
        foreseen, header = self._going.get(kind, (None, b""))
        return header if foreseen == data else encode_data(data)

    def look_ahead(self) -> None:
        """Make the headers that follow on what came and went since the last time."""
        for kind, data in self._incoming.following():
            self._foreseen.pop(self._coming.pop(kind, b""), None)
            if data is not None:
                self._foresee(kind, data)
        for kind, data in self._outgoing.following():
            self._going.pop(kind, None)
            if data is not None:
                self._going[kind] = data, encode_data(data)

    def _foresee(self, kind: Kind, data: Data) -> None:
        try:
            foreseen = Foreseen(kind[0], data, self._check(kind[0], data))
        except RunError:
            return  # there will be no such step
        header = self._coming[kind] = encode_data(data)
        self._foreseen[header] = foreseen


@dataclass(slots=True)
class _Chains:
    """The last message of every kind, and those since `following` was asked for."""

    last: dict[Kind, Data] = field(default_factory=dict)
    fresh: dict[Kind, Data] = field(default_factory=dict)

    def following(self) -> Iterator[tuple[Kind, Data | None]]:
        """Of every kind that had a message: the next one, or None where that cannot be said."""
        for kind, data in self.fresh.items():
            before = self.last.get(kind)
            yield kind, None if before is None else _following(before, data)
        self.last.update(self.fresh)
        self.fresh.clear()


def _kind(peer: str, data: Data) -> Kind:
    return peer, data.step.slot, tuple(name for name, _, _ in data.values)


def _following(before: Data, last: Data) -> Data | None:
    """What comes after the messages of two successive tokens; None for others."""
    old, new = before.step, last.step
    if (new.request, new.step, new.phase, old.phase) != (old.request, old.step + 1, "decode", "decode"):
        return None
    position = tuple(map(sum, zip(new.position, new.length, strict=True)))
    step = Step(new.request, new.slot, new.step + 1, new.phase, new.dims, position, new.length)
    # Requests in flight take turns, so their messages are as far apart as the last two.
    return Data(last.plan, last.epoch, last.session, 2 * last.seq - before.seq, step, last.values)
