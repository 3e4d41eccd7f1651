"""The ends of connections, told by file descriptors that are used again at once."""

from __future__ import annotations

import random
from collections import deque

import pytest

from partc.runtime.shell.incoming import Incoming

MANY = 1000


def accept(incoming: Incoming, number: int) -> None:
    """A connection is accepted, and proves whose it is."""
    assert incoming.accepted(number) is None
    incoming.proven(number)


def breaks(incoming: Incoming, *, all_read: bool = True) -> list[bytes]:
    return list(incoming.breaks(all_read=all_read))


def test_a_message_that_is_read_after_the_end_was_told() -> None:
    """The next connection has the same number: its end is not that of the one before."""
    incoming = Incoming(MANY)
    accept(incoming, 20)
    incoming.came(20, b"first")
    incoming.ended(20)
    assert incoming.knows(b"first")
    assert breaks(incoming) == [b"first"]
    assert incoming.knows(b"first"), "a late message of it is nobody's first one"
    accept(incoming, 20)
    incoming.came(20, b"second")
    assert breaks(incoming) == []
    incoming.ended(20)
    assert breaks(incoming) == [b"second"]


def test_the_end_of_one_and_the_greeting_of_the_next_lie_ready_together() -> None:
    incoming = Incoming(MANY)
    accept(incoming, 20)
    incoming.ended(20)
    accept(incoming, 20)
    incoming.came(20, b"first")
    incoming.came(20, b"second")
    assert breaks(incoming) == [b"first"]
    incoming.ended(20)
    assert breaks(incoming) == [b"second"]


def test_a_connection_that_never_says_anything() -> None:
    incoming = Incoming(MANY)
    incoming.accepted(20)
    incoming.ended(20)
    accept(incoming, 20)
    incoming.ended(20)
    assert breaks(incoming, all_read=False) == []
    assert breaks(incoming) == []
    accept(incoming, 20)
    incoming.came(20, b"route")
    assert breaks(incoming) == []


def test_the_longest_silent_one_gives_way() -> None:
    incoming = Incoming(2)
    assert [incoming.accepted(number) for number in (5, 6)] == [None, None]
    incoming.came(5, b"five")
    assert [incoming.accepted(number) for number in (7, 8)] == [None, 6]


@pytest.mark.parametrize("seed", range(20))
def test_every_end_is_told_once_and_of_its_own_connection(seed: int) -> None:
    """Connections come and go under three numbers, and are looked at now and then; some never prove whose they are.

    A device that has proven it greets at once.
    """
    rng = random.Random(seed)
    incoming = Incoming(MANY)
    events: deque[tuple[str, int]] = deque()
    messages: deque[tuple[int, bytes]] = deque()
    standing: dict[int, bytes] = {}
    spoke: set[bytes] = set()
    told: list[bytes] = []
    made = 0

    def look(most: int) -> None:
        """As the transport does: the monitor first, then some of the messages, then breaks."""
        while events:
            kind, number = events.popleft()
            getattr(incoming, kind)(number)
        for _ in range(min(most, len(messages))):
            number, route = messages.popleft()
            if not incoming.knows(route):
                incoming.came(number, route)
        told.extend(incoming.breaks(all_read=not messages))

    for _ in range(300):
        number = rng.randrange(3)
        match rng.choice(["open", "close", "say", "say", "look"]):
            case "open" if number not in standing:
                made += 1
                standing[number] = route = b"%d" % made if rng.random() < 0.7 else b""
                events.append(("accepted", number))
                if route:
                    events.append(("proven", number))
                    messages.append((number, route))
                    spoke.add(route)
            case "close" if number in standing:
                del standing[number]
                events.append(("ended", number))
            case "say" if standing.get(number):
                messages.append((number, standing[number]))
            case "look":
                look(rng.choice([1, 3, MANY]))
            case _:
                pass  # what cannot happen now
    look(MANY)
    assert sorted(told) == sorted(spoke - set(standing.values()))
