"""The source in a change of placement, from the first loss to the last token; golden/protocol/rewind_*.md has more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

from partc.format.frames import to_frame
from partc.format.message_parts import Held, Opening, Problem, Row, Sampling, TensorSpec
from partc.format.messages import (
    CLIENT,
    AnyMessage,
    Cancel,
    Commit,
    Data,
    Error,
    Fail,
    Place,
    Placed,
    Pong,
    Prepare,
    Prepared,
    Ready,
    Result,
    Resume,
    Timings,
    Token,
    Unready,
    Welcome,
)
from partc.format.placement import Placement
from partc.runtime.core.commands import Command, Compute, Load, Log, Release, Send
from partc.runtime.core.device.device import Device
from partc.runtime.core.events import Computed, Connected, Disconnected, Event, Loaded, Origin, Received, Tick
from partc.runtime.core.start import Start
from tests.runtime.core.changing import compiled, frames_of, moved, role_of, without_b
from tests.runtime.core.life import without_logs
from tests.runtime.core.roles import hello, submit

M = TypeVar("M")
HIDDEN_WIDTH = 2
INCARNATIONS = {"b": 2, "c": 3}


class Life:
    """Device a of the ring a, b, c, which stands, with a client; other devices do what a test says."""

    def __init__(self, contingencies: Sequence[Placement] = (), **options: float) -> None:
        start = Start(
            incarnation=1, first_request=40, rejoin_s=options.get("rejoin_s", 60.0),
            linger_s=options.get("linger_s", 0.0), contingencies=contingencies,
        )  # fmt: skip
        self.device = Device(role_of("a"), start, 0.0)
        self.now = 0.0
        self.logs: list[Log] = []
        self.on(Loaded())
        for name in INCARNATIONS:
            self.greet(name)
        self.connect("b")
        for name in INCARNATIONS:
            self.ready(name)
        self.receive(hello(CLIENT, placement=self.placement), CLIENT.encode())

    @property
    def placement(self) -> bytes:
        return bytes.fromhex(compiled().placement_id)

    def on(self, event: Event, after_s: float = 0.0) -> list[Command]:
        self.now += after_s
        commands, logs = without_logs(self.device.on(event, self.now))
        self.logs += logs
        return commands

    def receive(
        self, message: AnyMessage, origin: Origin, frames: Sequence[memoryview] = ()
    ) -> list[Command]:
        return self.on(Received(origin, None, message, frames))

    def connect(self, name: str) -> list[Command]:
        self.on(Connected(name))
        return self.receive(Welcome(name=name, incarnation=1, epoch=0, next=0, info={}), name)

    def greet(self, name: str, incarnation: int = 0, route: bytes = b"", epoch: int = 0) -> list[Command]:
        life = incarnation or INCARNATIONS[name]
        greeting = hello(name, life, incarnation=life, epoch=epoch, placement=self.placement)
        return self.receive(greeting, route or name.encode())

    def ready(self, name: str, route: bytes = b"") -> list[Command]:
        message = Ready(next_request=0, placement=self.placement, epoch=0, incarnation=INCARNATIONS[name])
        return self.receive(message, route or name.encode())

    def ask(self, **changes: Any) -> list[Command]:
        return self.receive(submit([1, 2, 5], **{"max_new_tokens": 5, **changes}), CLIENT.encode())

    def computed(self) -> list[Command]:
        (work,) = (self.device.requests._computing,)
        assert work is not None
        return self.on(Computed([np.zeros((1, 3 if work.steps == 0 else 1, HIDDEN_WIDTH), np.float32)], 0.1))

    def token(
        self, step: int, token: int, seq: int, epoch: int = 0, session: int = 3, route: bytes = b"c"
    ) -> list[Command]:
        """A token of request 40 comes round."""
        sequence, position = (1, 2 + step) if step else (3, 0)
        array = np.array([token])
        message = Data(
            session=session, epoch=epoch, seq=seq, phase="decode" if step else "prefill",
            dims={"batch": 1, "sequence": sequence}, rows=(Row(40, 0, step, position, sequence),),
            values=(TensorSpec("token", "int64", (1,)),),
            open=() if step else (Opening(40, Sampling()),),
        )  # fmt: skip
        return self.receive(message, route, [memoryview(to_frame(array))])

    def prepared(self, epoch: int, *have: Held, route: bytes, incarnation: int) -> list[Command]:
        return self.receive(Prepared(epoch=epoch, incarnation=incarnation, have=have), route)

    def running(self, steps: int = 2) -> None:
        """Request 40 has gone so many steps round the ring, and the next one is on its way."""
        self.ask()
        self.computed()
        for step in range(steps):
            self.token(step, step + 7, seq=step)
            self.computed()

    def place(self, placement: Placement) -> list[Command]:
        return self.receive(Place(ticket=b"p" * 16), CLIENT.encode(), frames_of(placement))


def sent(kind: type[M], commands: Sequence[Command]) -> list[M]:
    return [c.message for c in commands if isinstance(c, Send) and isinstance(c.message, kind)]


# -- losses


def test_a_loss_that_nobody_waits_for() -> None:
    life = Life(rejoin_s=0.0)
    life.running()
    (error,) = sent(Error, life.on(Disconnected(b"b")))
    assert (error.problem.cause, error.problem.where) == ("lost-peer", "b")
    assert not life.device.has_requests


def test_a_loss_with_a_contingency_needs_no_waiting() -> None:
    life = Life([without_b()], rejoin_s=0.0)
    life.running()
    commands = life.on(Disconnected(b"b"))
    assert sent(Error, commands) == []
    (load,) = [command for command in commands if isinstance(command, Load)]
    assert (load.epoch, load.submodules) == (1, ("p1",))


def test_a_loss_is_waited_for() -> None:
    life = Life()
    life.running()
    assert sent(Error, life.on(Disconnected(b"c"))) == []
    assert sent(Error, life.on(Tick(), after_s=59.0)) == []
    (error,) = sent(Error, life.on(Tick(), after_s=1.5))
    assert "did not come back within 60 s" in error.problem.message


def test_a_new_life_takes_part_in_no_request() -> None:
    """Before COMMIT it must not take values that were on their way to its former life."""
    life = Life()
    life.running()
    life.on(Disconnected(b"c"))
    (welcome,) = sent(Welcome, life.greet("c", incarnation=9, route=b"c2"))
    assert welcome.first_request == 41


def test_a_device_with_its_memory_goes_on() -> None:
    life = Life()
    life.running()
    life.on(Disconnected(b"c"))
    commands = life.greet("c", route=b"c2")
    assert sent(Welcome, commands)[0].first_request == 40
    assert sent(Prepare, commands) == []
    life.ready("c", b"c2")
    assert sent(Token, life.token(2, 9, seq=2, route=b"c2")) != []


def test_the_slots_of_two_lives() -> None:
    """What waited for a slot or the ring opens behind COMMIT, under a new number."""
    life = Life()
    for number in range(3):
        life.ask(ticket=bytes([number]) * 16)
    life.greet("c", incarnation=9, route=b"c2")
    life.prepared(1, route=b"b", incarnation=2)
    commands = life.prepared(1, route=b"c2", incarnation=9)
    assert [len(commit.requests) for commit in sent(Commit, commands)] == [2, 2]
    assert [each.slot for each in sent(Commit, commands)[0].requests] == [0, 1]
    life.on(Computed([np.zeros((1, 3, HIDDEN_WIDTH), np.float32)], 0.1))
    commands = life.receive(Cancel(ticket=bytes([0]) * 16), CLIENT.encode())
    assert life.device.requests.request(42) is not None


def test_a_request_that_is_cancelled_while_it_stands_still() -> None:
    life = Life()
    life.running()
    life.greet("c", incarnation=9, route=b"c2")
    assert len(sent(Error, life.receive(Cancel(ticket=bytes(16)), CLIENT.encode()))) == 1
    life.prepared(1, Held(40, "p1", 2), route=b"b", incarnation=2)
    commands = life.prepared(1, route=b"c2", incarnation=9)
    assert [commit.requests for commit in sent(Commit, commands)] == [(), ()]


def test_tokens_of_an_older_epoch_are_not_told() -> None:
    """The device was wrongly taken for dead, or its token was on its way."""
    life = Life()
    life.running()
    life.greet("c", incarnation=9, route=b"c2")
    life.prepared(1, Held(40, "p1", 2), route=b"b", incarnation=2)
    life.prepared(1, route=b"c2", incarnation=9)
    assert sent(Token, life.token(2, 9, seq=2, route=b"c2", session=9)) == []
    assert sent(Token, life.token(2, 9, seq=2, route=b"c")) == []


# -- stalls


def test_a_device_that_does_not_answer_counts_as_lost() -> None:
    life = Life([without_b()])
    life.running()
    life.on(Tick(), after_s=2.0)
    life.receive(Pong(token=0, computing=False, doing=""), b"c")
    commands = life.on(Tick(), after_s=4.0)
    assert [message.epoch for message in sent(Prepare, commands)] == [1], "to c alone"
    assert sent(Error, commands) == []


def test_a_stall_although_everybody_answers() -> None:
    """Everything is begun anew from the watermarks, until the time for a return is over."""
    life = Life()
    life.running(steps=1)
    commands = stall(life)
    assert [message.stands_still for message in sent(Prepare, commands)] == [True, True]
    life.prepared(1, Held(40, "p1", 1), route=b"b", incarnation=2)
    life.prepared(1, Held(40, "p2", 1), route=b"c", incarnation=3)
    life.on(Computed([np.zeros((1, 1, HIDDEN_WIDTH), np.float32)], 0.1))
    assert [message.epoch for message in sent(Prepare, stall(life))] == [2, 2]
    life.prepared(2, Held(40, "p1", 1), route=b"b", incarnation=2)
    life.prepared(2, Held(40, "p2", 1), route=b"c", incarnation=3)
    life.on(Computed([np.zeros((1, 1, HIDDEN_WIDTH), np.float32)], 0.1))
    (error,) = sent(Error, life.on(Tick(), after_s=60.0))
    assert error.problem.cause == "stalled"


def stall(life: Life) -> list[Command]:
    """Devices answer, and nothing else happens for as long as patience lasts."""
    life.on(Tick(), after_s=2.0)
    for name in (b"b", b"c"):
        life.receive(Pong(token=0, computing=False, doing=""), name)
    return life.on(Tick(), after_s=4.0)


def test_a_link_that_never_comes_back_between_devices_that_answer() -> None:
    """One direction is cut for good: the request ends once `rejoin` is over."""
    life = Life()
    life.running()
    errors = sent(Error, life.receive(Unready(lost="c"), b"b"))
    for _ in range(200):
        for name in (b"b", b"c"):
            errors += sent(Error, life.receive(Pong(token=0, computing=False, doing=""), name))
        epoch = life.device.source.changes.highest  # type: ignore[union-attr]
        life.prepared(epoch, Held(40, "p2", 2), route=b"c", incarnation=3)
        errors += sent(Error, life.on(Tick(), after_s=1.0))
    assert [(error.problem.cause, error.problem.where) for error in errors] == [("lost-peer", "b -> c")]
    assert life.now == pytest.approx(200.0)
    assert not life.device.has_requests


def test_a_link_of_the_source_that_never_comes_back() -> None:
    life = Life()
    life.running()
    life.on(Disconnected("b"))
    errors: list[Error] = []
    for _ in range(70):
        errors += sent(Error, life.receive(Pong(token=0, computing=False, doing=""), b"b"))
        errors += sent(Error, life.receive(Pong(token=0, computing=False, doing=""), b"c"))
        errors += sent(Error, life.on(Tick(), after_s=1.0))
    assert [(error.problem.cause, error.problem.where) for error in errors] == [("lost-peer", "a -> b")]


def test_a_device_that_loads_for_long_is_no_link_that_is_cut() -> None:
    """It is lost, and its consumer says so; the change takes as long as it takes."""
    life = Life([without_b()])
    life.running()
    life.on(Disconnected(b"b"))
    life.receive(Unready(lost="b"), b"c")
    for _ in range(100):
        life.receive(Pong(token=0, computing=False, doing=""), b"c")
        assert sent(Error, life.on(Tick(), after_s=1.0)) == []
    life.connect("c")
    life.prepared(1, Held(40, "p2", 2), route=b"c", incarnation=3)
    assert len(sent(Commit, life.on(Loaded(1)))) == 1


# -- moves


def test_a_move_from_the_wish_to_the_first_step_behind_it() -> None:
    life = Life()
    life.running()
    assert len(sent(Prepare, life.place(moved()))) == 2
    life.connect("c")
    life.prepared(1, route=b"b", incarnation=2)
    life.prepared(1, Held(40, "p1", 2), Held(40, "p2", 2), route=b"c", incarnation=3)
    boundary = life.token(2, 9, seq=2)
    assert [type(c) for c in boundary if isinstance(c, Compute)] == [], "it stands at its boundary"
    assert [message.requests[0].step for message in sent(Prepare, boundary)] == [3, 3]
    life.prepared(1, route=b"b", incarnation=2)
    life.now += 0.5
    commands = life.prepared(1, Held(40, "p1", 3), Held(40, "p2", 2), route=b"c", incarnation=3)
    assert [commit.requests[0].step for commit in sent(Commit, commands)] == [2, 2], "the lowest watermark"
    (placed,) = sent(Placed, commands)
    assert (placed.epoch, placed.stopped_s, placed.steps) == (1, 0.5, 1)
    assert [c.submodule for c in commands if isinstance(c, Compute)] == ["p0"]


def test_a_move_to_the_source_and_back() -> None:
    """It loads what it will run, and releases it when it does not run it any more."""
    life = Life()
    (load,) = [command for command in life.place(without_b()) if isinstance(command, Load)]
    assert load.submodules == ("p1",)
    life.connect("c")
    life.prepared(1, route=b"b", incarnation=2)
    life.prepared(1, route=b"c", incarnation=3)
    assert len(sent(Placed, life.on(Loaded(1)))) == 1
    life.place(compiled())
    life.prepared(2, route=b"b", incarnation=2)
    commands = life.prepared(2, route=b"c", incarnation=3)
    assert Release(("p1",)) in commands
    assert [placed.epoch for placed in sent(Placed, commands)] == [2]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"format": 1}', b"\xff"])
def test_a_wish_that_is_no_placement(text: bytes) -> None:
    life = Life()
    commands = life.receive(Place(ticket=b"p" * 16), CLIENT.encode(), [memoryview(text)] if text else [])
    (error,) = sent(Error, commands)
    assert (error.ticket, error.problem.cause) == (b"p" * 16, "input")


def test_devices_do_not_ask_for_placements() -> None:
    life = Life()
    assert life.receive(Place(ticket=b"p" * 16), b"b", frames_of(without_b())) == []


def test_a_change_that_is_given_up_at_the_boundary() -> None:
    """The request goes on in the placement in force."""
    life = Life()
    life.running()
    life.place(moved())
    life.connect("c")
    life.prepared(1, route=b"b", incarnation=2)
    life.prepared(1, Held(40, "p1", 2), Held(40, "p2", 2), route=b"c", incarnation=3)
    life.token(2, 9, seq=2)
    problem = Problem("bug", "out of memory", "c")
    commands = life.receive(Prepared(epoch=1, incarnation=3, have=(), problem=problem), b"c")
    assert [error.problem.message for error in sent(Error, commands)] == ["out of memory"]
    assert [c.submodule for c in commands if isinstance(c, Compute)] == ["p0"]


def test_a_request_that_fails_while_it_stands_still() -> None:
    life = Life()
    life.running()
    life.greet("c", incarnation=9, route=b"c2")
    fail = Fail(request=40, earlier=False, problem=Problem("bug", "x", "b"))
    assert len(sent(Error, life.receive(fail, b"b"))) == 1


# -- clients that come back


def test_what_a_client_missed() -> None:
    life = Life(linger_s=30.0)
    life.running(steps=1)
    assert life.on(Disconnected(CLIENT.encode())) == []
    life.token(1, 8, seq=1)
    life.computed()
    life.receive(hello(CLIENT, placement=life.placement), b"client 2")
    commands = life.receive(Resume(ticket=bytes(16), from_step=0), b"client 2")
    assert [(token.step, token.tokens) for token in sent(Token, commands)] == [(0, (7,)), (1, (8,))]
    assert {command.origin for command in commands if isinstance(command, Send)} == {b"client 2"}


def test_a_request_survives_its_client_and_a_loss_together() -> None:
    life = Life(linger_s=30.0)
    life.running(steps=1)
    life.on(Disconnected(CLIENT.encode()))
    life.greet("c", incarnation=9, route=b"c2")
    life.prepared(1, Held(40, "p1", 1), route=b"b", incarnation=2)
    commands = life.prepared(1, route=b"c2", incarnation=9)
    assert len(sent(Commit, commands)[0].requests) == 1


def test_a_client_that_does_not_come_back() -> None:
    life = Life(linger_s=3.0)
    life.running(steps=1)
    life.on(Disconnected(CLIENT.encode()))
    life.on(Tick(), after_s=3.5)
    assert not life.device.has_requests


def test_the_end_of_a_rewound_request() -> None:
    """The client hears how much was computed again, and how much of it came out otherwise."""
    life = Life()
    life.running(steps=2)
    life.greet("c", incarnation=9, route=b"c2")
    life.prepared(1, Held(40, "p1", 2), route=b"b", incarnation=2)
    life.prepared(1, route=b"c2", incarnation=9)
    life.computed()
    for step, token in enumerate((7, 11, 9, 10, 11)):
        commands = life.token(step, token, seq=step, epoch=1, session=9, route=b"c2")
        if life.device.requests.computing is not None:
            life.computed()
    assert sent(Token, commands)[-1].finish == ("length",)
    for name, route in (("b", b"b"), ("c", b"c2")):
        commands = life.receive(Timings(request=40, device=name, columns=(), values=()), route)
    (result,) = sent(Result, commands)
    assert result.tokens == ((7, 8, 9, 10, 11),), "those that it was told of"
    assert (result.replayed, result.mismatches) == (2, 1)
