"""The source as a whole: each test is a row of the table in `core/device/device.py`, as the source has it."""

from __future__ import annotations

import pytest

from partc.errors import RunError
from partc.format.message_parts import Opening, Problem
from partc.format.messages import (
    CLIENT,
    Cancel,
    Close,
    Crossed,
    Data,
    Error,
    Fail,
    Ping,
    Pong,
    Result,
    Shutdown,
    Stats,
    Timings,
    Token,
    Trace,
    Unready,
)
from partc.runtime.core.commands import Announce, Compute, Send
from partc.runtime.core.events import (
    Computed,
    ComputeFailed,
    Disconnected,
    Event,
    Loaded,
    Received,
    Tick,
)
from tests.runtime.core.life import (
    CLIENT_ROUTE,
    Life,
    arrived,
    data,
    middle,
    on_its_way,
    opened,
    ready,
    sent,
    source,
    values,
)
from tests.runtime.core.roles import GREEDY, TICKET, hello

# -- the ring


def test_the_ring_stands_at_the_source() -> None:
    """ready, at the source: membership; waiting requests open."""
    life = Life("a")
    life.greeted(CLIENT)
    assert opened(life) == []
    life.on(Loaded())
    for name in ("b", "c"):
        life.greeted(name)
        life.link(name)
    assert life.receive(ready(), b"b") == []
    commands = life.receive(ready(200), b"c")
    assert commands[0] == Announce()
    (compute,) = [command for command in commands if isinstance(command, Compute)]
    assert compute.submodule == "part_0"
    life.on(Computed(values("embed", "hidden_1"), 0.1))
    assert {row.request for message in sent(Data, life.commands) for row in message.rows} == {200}


def test_a_link_that_comes_up_last_opens_what_waits() -> None:
    """welcome, at the source: waiting requests open."""
    life = Life("a")
    life.on(Loaded())
    life.greeted(CLIENT)
    for name in ("b", "c"):
        life.greeted(name)
        life.receive(ready(), name.encode())
    life.link("b")
    assert opened(life) == []
    assert any(isinstance(command, Compute) for command in life.link("c"))


def test_a_client_is_lost() -> None:
    """disconnected, at the source: its requests are cancelled."""
    life = on_its_way()
    commands = life.on(Disconnected(CLIENT_ROUTE))
    assert sent(Close, commands) == [Close(request=100, report=False)] * 2
    assert not life.device.has_requests


def test_a_device_is_lost_at_the_source() -> None:
    """disconnected, at the source: requests in flight end; nothing is opened until it is ready again."""
    life = on_its_way()
    (error,) = sent(Error, life.on(Disconnected(b"b")))
    assert (error.problem.cause, error.problem.where) == ("lost-peer", "b")
    assert not life.device.has_requests
    assert opened(life, ticket=b"1" * 16) == []


@pytest.mark.parametrize(
    "event",
    [Disconnected("b"), Received(b"b", None, Unready(lost="c"))],
    ids=["of the source", "of a device"],
)
def test_a_link_that_breaks_is_waited_for(event: Event) -> None:
    """disconnected, unready, at the source: requests in flight go on; nothing is opened meanwhile."""
    life = on_its_way()
    assert sent(Error, life.on(event)) == []
    assert life.device.has_requests
    assert opened(life, ticket=b"1" * 16) == []
    commands = life.link("b") if isinstance(event, Disconnected) else life.receive(ready(), b"b")
    assert [type(command) for command in commands][-1] is Compute


def test_a_device_returns() -> None:
    """ready, at the source: what has waited opens."""
    life = on_its_way()
    life.on(Disconnected(b"b"))
    life.on(Disconnected("b"))
    assert opened(life, ticket=b"1" * 16) == []
    life.link("b")
    life.greeted("b")
    commands = life.receive(ready(), b"b")
    assert [type(command) for command in commands] == [Compute]


def test_a_link_of_the_source_that_breaks_alone() -> None:
    """welcome, at the source: the device never left, so what has waited opens without another `ready`."""
    life = on_its_way()
    life.on(Disconnected("b"))
    assert opened(life, ticket=b"1" * 16) == []
    commands = life.link("b")
    assert len(sent(Data, commands)) == 1, "what was not acknowledged"
    assert any(isinstance(command, Compute) for command in commands)


def test_a_device_that_returns_before_its_end_is_noticed() -> None:
    """hello of a device that is known on another connection: requests in flight end; the late end changes nothing."""
    life = on_its_way()
    commands = life.receive(hello("b", session=10), b"new route of b")
    assert len(sent(Error, commands)) == 1
    assert opened(life, ticket=b"1" * 16) == []
    assert any(isinstance(command, Compute) for command in life.receive(ready(), b"new route of b"))
    assert life.on(Disconnected(b"b")) == []
    assert life.device.has_requests
    assert Send(b"new route of b", Shutdown()) in life.receive(Shutdown(), CLIENT_ROUTE)


def test_nobody_reports_for_another_device() -> None:
    """timings, crossed, at the source: they are the sender's own."""
    life = on_its_way()
    assert life.receive(Crossed(request=100, device="c", peer="a", step=0, values=()), b"b") == []
    assert life.receive(Timings(request=100, device="c", columns=(), values=()), b"b") == []


def test_nothing_is_opened_before_the_source_has_loaded() -> None:
    """loaded, at the source: what has waited opens."""
    life = Life("a")
    for name in ("b", "c"):
        life.greeted(name)
        life.link(name)
        life.receive(ready(), name.encode())
    life.greeted(CLIENT)
    assert opened(life) == []
    assert [type(command) for command in life.on(Loaded())] == [Announce, Compute]


# -- requests


def test_submit() -> None:
    """submit: a request begins, or is refused."""
    life = source()
    (compute,) = opened(life)
    assert isinstance(compute, Compute)
    (error,) = sent(Error, opened(life, ticket=b"1" * 16, max_new_tokens=0))
    assert error.ticket == b"1" * 16


def test_a_request_from_its_first_token_to_its_result() -> None:
    """data, computed, timings: a token begins the next step; the last one ends the request."""
    life = on_its_way()
    assert {command.origin for command in life.commands if isinstance(command, Send)} == {"b", "c"}
    life.commands.clear()
    message, frames = data("token", open=(Opening(100, GREEDY),))
    commands = life.receive(message, b"c", frames)
    assert [token.tokens for token in sent(Token, commands)] == [(4,)]
    assert isinstance(commands[-1], Compute)
    life.on(Computed(values("embed", "hidden_1", sequence=1), 0.1))
    message, frames = data("token", 1, step=1)
    commands = life.receive(message, b"c", frames)
    assert [token.finish for token in sent(Token, commands)] == [("length",)]
    assert [stats.device for stats in sent(Stats, commands)] == ["a"]
    assert sent(Close, commands) == [Close(request=100, report=True)] * 2
    assert not life.device.has_requests
    for device in ("b", "c"):
        assert sent(Result, life.commands) == []
        life.receive(Timings(request=100, device=device, columns=(), values=()), device.encode())
    (result,) = sent(Result, life.commands)
    assert (result.tokens, result.finish) == (((4, 4),), ("length",))


def test_the_next_step_is_on_its_way_before_a_client_is_told() -> None:
    """data, at the source: what others wait for is in `react`, what can wait in `catch_up`."""
    life = on_its_way(max_new_tokens=3)
    life.receive(*arrived(data("token", open=(Opening(100, GREEDY),)), b"c"))
    life.on(Computed(values("embed", "hidden_1", sequence=1), 0.1))
    message, frames = data("token", 1, step=1)
    event = Received(b"c", None, message, frames)
    assert [type(command) for command in life.device.react(event, 1.0)] == [Compute]
    assert [token.step for token in sent(Token, life.device.catch_up(1.0))] == [1]


def test_cancel() -> None:
    """cancel: the request ends everywhere."""
    life = on_its_way()
    commands = life.receive(Cancel(ticket=TICKET), CLIENT_ROUTE)
    assert len(sent(Error, commands)) == 1
    assert len(sent(Close, commands)) == 2
    assert not life.device.has_requests


def test_fail() -> None:
    """fail: the client hears `error`, with the cause of whoever failed."""
    life = on_its_way()
    fail = Fail(request=100, earlier=False, problem=Problem("bug", "out of memory", "b", "buy some"))
    (error,) = sent(Error, life.receive(fail, b"b"))
    assert error.problem == fail.problem
    assert life.receive(fail, b"b") == [], "it is over"


def test_the_source_s_own_failure() -> None:
    """compute failed, at the source: the client hears `error`."""
    life = source()
    opened(life)
    (error,) = sent(Error, life.on(ComputeFailed(RunError("out of memory", cause="bug"))))
    assert (error.problem.cause, error.problem.where) == ("bug", "a")


def test_crossed() -> None:
    """crossed: passed on to the client; so are the values that the source itself receives."""
    life = on_its_way(trace=True)
    (trace,) = sent(Trace, life.receive(Crossed(request=100, device="b", peer="a", step=0, values=()), b"b"))
    assert (trace.ticket, trace.device, trace.peer) == (TICKET, "b", "a")
    message, frames = data("token", open=(Opening(100, GREEDY, True),))
    (own,) = sent(Trace, life.receive(message, b"c", frames))
    assert (own.device, own.peer, own.values[0].name) == ("a", "c", "token")


def test_traced_values_of_another_device() -> None:
    """data of a traced request: the source hears `crossed`."""
    life = middle()
    (crossed,) = sent(Crossed, life.receive(*arrived(data("hidden_1", trace=True), b"a")))
    assert (crossed.request, crossed.device, crossed.peer) == (100, "b", "a")


def test_no_progress() -> None:
    """tick, at the source: devices are asked; requests without progress end: `stalled`."""
    life = on_its_way()
    assert len(sent(Ping, life.on(Tick(), after_s=1.5))) == 2
    life.receive(Pong(token=0, computing=True, doing="computes for request 100"), b"b")
    (error,) = sent(Error, life.on(Tick(), after_s=4.0))
    assert (error.problem.cause, error.problem.where) == ("stalled", "c")
    assert "c does not answer" in error.problem.message


def test_its_own_computing_is_progress() -> None:
    """computed, at the source: a request whose first device is slow has not stood still."""
    life = source()
    opened(life)
    life.on(Computed(values("embed", "hidden_1"), 4.0), after_s=4.0)
    assert sent(Error, life.on(Tick(), after_s=4.0)) == []
    assert len(sent(Error, life.on(Tick(), after_s=1.5))) == 1


def test_waiting_for_a_device() -> None:
    """tick, at the source: a request that waits for the ring ends with the name of who is absent."""
    life = Life("a")
    life.on(Loaded())
    life.greeted(CLIENT)
    opened(life)
    (error,) = sent(Error, life.on(Tick(), after_s=5.3))
    assert (error.problem.cause, error.problem.where) == ("lost-peer", "b, c")
