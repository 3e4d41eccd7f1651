"""Connections in virtual time: order, delays, breaks, repetitions and disorder, and lives of devices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from partc.errors import InternalError
from partc.format.messages import Ack, Ping
from partc.runtime.core.events import Connected, Disconnected, Event, Received
from partc.runtime.virtual.clock import Clock
from partc.runtime.virtual.network import Conditions, Network
from partc.runtime.virtual.ring import Ring
from tests.runtime.roles import THREE, null_engine, roles_of


@dataclass(eq=False)
class End:
    """A participant that notes what happens to it."""

    name: str
    clock: Clock
    alive: bool = True
    events: list[tuple[float, Event]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        self.events.append((self.clock.now, event))

    def kinds(self) -> list[str]:
        return [type(event).__name__ for _, event in self.events]

    def tokens(self) -> list[int]:
        """Numbers of the messages that came."""
        came = [event.message for _, event in self.events if isinstance(event, Received)]
        return [message.token if isinstance(message, Ping) else message.seq for message in came]  # type: ignore[union-attr]


@dataclass
class Pair:
    """Two participants; `a` connects to `b`."""

    conditions: Conditions

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.a, self.b = End("a", self.clock), End("b", self.clock)
        ends = {"a": self.a, "b": self.b}
        self.network = Network(self.clock, self.conditions, random.Random(1), ends.__getitem__)
        self.network.connect(self.a, "b")
        self.run(1.0)

    def run(self, until_s: float) -> None:
        while self.clock.next_s is not None and self.clock.next_s <= until_s:
            self.clock.turn()

    def pings(self, numbers: Iterator[int] | range) -> None:
        for number in numbers:
            self.network.send(self.a, "b", Ping(token=number), ())

    def acks(self, numbers: range) -> None:
        for number in numbers:
            self.network.send(self.a, "b", Ack(session=1, epoch=0, seq=number), ())


def test_messages_of_a_connection_come_in_order() -> None:
    pair = Pair(Conditions(delay_s=0.01, jitter_s=0.5))
    assert pair.a.events == [(0.01, Connected("b"))]
    pair.pings(range(20))
    pair.run(9.0)
    assert pair.b.tokens() == list(range(20))
    assert len({now for now, _ in pair.b.events}) > 2


def test_an_answer_goes_back_over_the_route() -> None:
    pair = Pair(Conditions(delay_s=0.01))
    pair.pings(range(1))
    pair.run(2.0)
    (_, came), = pair.b.events  # fmt: skip
    assert isinstance(came, Received)
    assert (came.user, type(came.origin)) == ("a", bytes)
    pair.network.send(pair.b, came.origin, Ping(token=7), ())
    pair.run(3.0)
    assert pair.a.tokens() == [7]


def test_numbered_messages_may_come_twice_and_in_any_order() -> None:
    pair = Pair(Conditions(delay_s=0.01, disorder=0.5, repetition=0.5))
    pair.acks(range(20))
    pair.run(9.0)
    came = pair.b.tokens()
    assert sorted(set(came)) == list(range(20))
    assert len(came) > 20
    assert came != sorted(came)


def test_other_messages_come_once_and_in_order() -> None:
    pair = Pair(Conditions(delay_s=0.01, disorder=1.0, repetition=1.0))
    pair.pings(range(20))
    pair.run(9.0)
    assert pair.b.tokens() == list(range(20))


def test_a_break_loses_what_is_under_way_and_the_opener_returns() -> None:
    pair = Pair(Conditions(delay_s=0.1, jitter_s=0.2, notice_s=0.2))
    pair.pings(range(20))
    pair.network.cut("a", "b")
    pair.pings(range(20, 25))
    pair.run(9.0)
    came = pair.b.tokens()
    assert came == list(range(len(came)))
    assert len(came) < 20
    assert pair.a.kinds() == ["Connected", "Disconnected", "Connected"]
    assert pair.b.kinds().count("Disconnected") == 1
    before = next(now for now, event in pair.b.events if isinstance(event, Disconnected))
    assert all(now <= before for now, event in pair.b.events if isinstance(event, Received))
    pair.pings(range(1))
    pair.run(20.0)
    assert pair.b.tokens()[-1] == 0
    routes = [event.origin for _, event in pair.b.events if isinstance(event, Received)]
    assert routes[-1] not in routes[:-1]


def test_a_connection_waits_for_the_other_end() -> None:
    pair = Pair(Conditions(delay_s=0.1))
    pair.b.alive = False
    pair.network.leave(pair.b)
    pair.run(5.0)
    assert pair.a.kinds() == ["Connected", "Disconnected"]
    pair.b.alive = True
    pair.run(6.0)
    assert pair.a.kinds()[-1] == "Connected"


def test_a_device_that_starts_again_has_another_incarnation_and_higher_numbers() -> None:
    roles = roles_of(THREE)
    ring = Ring(roles, lambda name: null_engine(roles[name]), conditions=Conditions(delay_s=0.01), seed=3)
    ring.run(2.0)
    former = ring.nodes["a"].device
    ring.restart("a", 0.5)
    ring.run(5.0)
    later = ring.nodes["a"].device
    assert later.links.incarnation != former.links.incarnation
    assert former.source is not None and later.source is not None
    assert later.source.schedule.queue.next_number > former.source.schedule.queue.next_number
    answer = ring.client.submit([[1, 2]], 3)
    ring.run(9.0, until=lambda: answer.done)
    assert answer.result is not None
    assert answer.reports == {"a", "b", "c"}


def test_requests_end_with_the_connection_of_their_client() -> None:
    roles = roles_of(THREE)
    ring = Ring(roles, lambda name: null_engine(roles[name]), conditions=Conditions(delay_s=0.01))
    ring.run(1.0)
    answer = ring.client.submit([[1, 2]], 20)
    ring.run(1.1)
    ring.network.cut("client", "a")
    ring.run(9.0)
    assert answer.problem is not None
    assert answer.problem.cause == "lost-peer"
    assert not any(node.device.has_requests for node in ring.nodes.values())


def test_time_that_stands_still_is_a_bug() -> None:
    roles = roles_of(THREE)
    ring = Ring(roles, lambda name: null_engine(roles[name]))

    def again() -> None:
        ring.clock.after(0.0, again)

    again()
    with pytest.raises(InternalError, match="time does not go on"):
        ring.run(1.0)
