"""A device as a whole: each test is a row of the table in `core/device.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.frames import to_frame
from partc.format.messages import (
    CLIENT,
    Ack,
    AnyMessage,
    Cancel,
    Close,
    Crossed,
    Data,
    Error,
    Fail,
    Hello,
    Opening,
    Ping,
    Pong,
    Problem,
    Ready,
    Refuse,
    Result,
    Row,
    Shutdown,
    Stats,
    TensorSpec,
    Timings,
    Token,
    Trace,
    Unready,
    Welcome,
)
from partc.runtime.core.commands import Announce, Command, Compute, Draw, Leave, Send
from partc.runtime.core.device import Device, Start
from partc.runtime.core.events import (
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    Event,
    Loaded,
    Origin,
    Received,
    Rejected,
    Tick,
    Unreadable,
)
from tests.runtime.bundles import HIDDEN, VOCABULARY
from tests.runtime.core.roles import GREEDY, hello, roles
from tests.runtime.core.test_job import submit

PLACEMENT = bytes.fromhex(roles()["a"].placement_id)
START = Start(incarnation=5, first_request=100)
CLIENT_ROUTE = b"route of client"
TICKET = bytes(16)
M = TypeVar("M")


class Life:
    """A device, and its events one by one; all that it sends is kept."""

    def __init__(self, device: str) -> None:
        self.device = Device(roles()[device], START, 0.0)
        self.name = device
        self.now = 0.0
        self.commands: list[Command] = []
        """All commands so far."""

    def on(self, event: Event, after_s: float = 0.0) -> list[Command]:
        self.now += after_s
        commands = self.device.on(event, self.now)
        self.commands += commands
        return commands

    def receive(
        self, message: AnyMessage, origin: Origin, frames: Sequence[bytes | memoryview] = ()
    ) -> list[Command]:
        return self.on(Received(origin, None, message, [memoryview(frame) for frame in frames]))

    def greeted(self, name: str) -> bytes:
        """Somebody connects and greets; the route of the connection."""
        route = CLIENT_ROUTE if name == CLIENT else name.encode()
        self.receive(hello(name), route)
        return route

    def link(self, peer: str, expected: int = 0) -> list[Command]:
        """A connection of this device comes up, and is welcomed."""
        self.on(Connected(peer))
        return self.receive(Welcome(name=peer, next=expected, info={}), peer)

    def take_tokens(self) -> list[Token]:
        return sent(Token, self.commands)


def sent(kind: type[M], commands: Iterable[Command]) -> list[M]:
    return [
        command.message
        for command in commands
        if isinstance(command, Send) and isinstance(command.message, kind)
    ]


def ready(number: int = 0) -> Ready:
    return Ready(next_request=number, placement=PLACEMENT, incarnation=9)


def values(*names: str, sequence: int = 3) -> list[Array]:
    return [np.ones((1, sequence, HIDDEN), np.float32) for _ in names]


def data(
    name: str, seq: int = 0, request: int = 100, step: int = 0, trace: bool = False, **changes: Any
) -> tuple[Data, list[memoryview]]:
    """A message of a step of [1, 2, 5] in slot 0, and its frames."""
    sequence, position = (1, 2 + step) if step else (3, 0)
    array: Array = np.array([4]) if name == "token" else np.ones((1, sequence, HIDDEN), np.float32)
    facts: dict[str, Any] = {
        "session": 9,
        "epoch": 0,
        "seq": seq,
        "phase": "decode" if step else "prefill",
        "dims": {"batch": 1, "sequence": sequence},
        "rows": (Row(request, 0, step, position, sequence),),
        "values": (TensorSpec(name, array.dtype.name, array.shape),),
        "open": () if step else (Opening(request, GREEDY, trace),),
    }
    return Data(**{**facts, **changes}), [to_frame(array)]


def middle() -> Life:
    """Device b of a → b → c, with its links up and part of the ring."""
    life = Life("b")
    life.on(Loaded())
    life.greeted("a")
    life.link("a")
    life.link("c")
    life.commands.clear()
    return life


def source() -> Life:
    """Device a of a complete ring, with a client."""
    life = Life("a")
    life.on(Loaded())
    for name in ("b", "c"):
        life.greeted(name)
        life.link(name)
        life.receive(ready(), name.encode())
    life.greeted(CLIENT)
    life.commands.clear()
    return life


def opened(life: Life, **changes: Any) -> list[Command]:
    """A request begins at the source: it computes its first sub-module."""
    return life.receive(submit([1, 2, 5], **changes), CLIENT_ROUTE)


def on_its_way(**changes: Any) -> Life:
    """The source, whose request 100 is on its way around the ring."""
    life = source()
    opened(life, **changes)
    life.on(Computed(values("embed", "hidden_1"), 0.1))
    return life


# -- any device: joining


def test_loaded() -> None:
    """loaded: `ready` once all links stand."""
    life = Life("b")
    life.link("a")
    assert sent(Ready, life.link("c")) == []
    commands = life.on(Loaded())
    assert sent(Ready, commands) == [Ready(next_request=0, placement=PLACEMENT, incarnation=5)]
    assert Announce() in commands


def test_connected() -> None:
    """connected: the link greets."""
    (greeting,) = sent(Hello, Life("b").on(Connected("c")))
    assert (greeting.name, greeting.incarnation) == ("b", 5)


def test_welcome() -> None:
    """welcome: the link repeats what was not acknowledged; `ready` once all stand."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    life.on(Computed(values("hidden_2"), 0.1))
    (first,) = sent(Data, life.commands)
    life.on(Disconnected("c"))
    commands = life.link("c", expected=0)
    assert sent(Data, commands) == [first]
    assert len(sent(Ready, commands)) == 1
    assert Announce() not in commands


def _swap(message: tuple[Data, list[memoryview]], origin: Origin) -> tuple[Data, Origin, list[memoryview]]:
    return message[0], origin, message[1]


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


def test_hello() -> None:
    """hello: `welcome` or `refuse`; the source welcomes clients, too."""
    assert len(sent(Welcome, Life("b").receive(hello("a"), b"1"))) == 1
    assert len(sent(Refuse, Life("b").receive(hello(CLIENT), b"1"))) == 1
    assert len(sent(Welcome, Life("a").receive(hello(CLIENT), b"1"))) == 1


@pytest.mark.parametrize(
    "event",
    [Rejected("c"), Received("c", None, Refuse(problem=Problem("refused", "another build")))],
    ids=["rejected", "refuse"],
)
def test_a_device_that_does_not_fit(event: Event) -> None:
    """rejected, `refuse`: before the ring ever stood the device leaves; later requests end."""
    (leave,) = Life("b").on(event)
    assert isinstance(leave, Leave)
    assert isinstance(leave.error, RunError)
    assert leave.error.cause == "refused"
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    (fail,) = sent(Fail, life.on(event))
    assert (fail.request, fail.problem.cause) == (None, "refused")
    assert not life.device.has_requests


# -- any device: steps


def test_data() -> None:
    """data: step 0 opens its request, which goes on."""
    life = middle()
    (compute,) = life.receive(*_swap(data("hidden_1"), b"a"))
    assert isinstance(compute, Compute)
    assert (compute.submodule, compute.slot, compute.resets) == ("part_1", 0, True)
    assert life.device.has_requests


def test_computed() -> None:
    """computed: the step goes on: sends, next sub-module, end."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    (message,) = sent(Data, life.on(Computed(values("hidden_2"), 0.1)))
    assert [spec.name for spec in message.values] == ["hidden_2"]
    (compute,) = life.receive(*_swap(data("hidden_1", 1, step=1), b"a"))
    assert isinstance(compute, Compute)
    assert not compute.resets


def test_a_step_that_samples() -> None:
    """computed: a sub-module, then a draw, then a message."""
    life = Life("c")
    life.on(Loaded())
    for name in ("a", "b"):
        life.greeted(name)
    life.link("a")
    life.receive(*_swap(data("embed"), b"a"))
    (compute,) = life.receive(*_swap(data("hidden_2"), b"b"))
    assert isinstance(compute, Compute)
    (draw,) = life.on(Computed([np.zeros((1, 1, VOCABULARY), np.float32)], 0.1))
    assert isinstance(draw, Draw)
    (message,) = sent(Data, life.on(Computed([np.array([4])], 0.1)))
    assert [spec.name for spec in message.values] == ["token"]


def test_while_the_engine_works() -> None:
    """Every event is handled as ever; no second `Compute`."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    row = (Row(101, 3, 0, 0, 3),)
    opening = (Opening(101, GREEDY),)
    assert life.receive(*_swap(data("hidden_1", 1, rows=row, open=opening), b"a")) == []
    assert sent(Pong, life.receive(Ping(token=4), b"a")) == [
        Pong(token=4, computing=True, doing="computes for request 100")
    ]
    commands = life.on(Computed(values("hidden_2"), 0.1))
    assert [type(command) for command in commands] == [Send, Compute]
    assert isinstance(commands[1], Compute)
    assert commands[1].slot == 1


def test_a_failure_of_the_engine() -> None:
    """compute failed: the request ends; the source hears `fail`."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    error = RunError("out of memory", cause="bug")
    (fail,) = sent(Fail, life.on(ComputeFailed(error)))
    assert (fail.request, fail.earlier, fail.problem) == (
        100,
        False,
        Problem("bug", "out of memory", "b", None),
    )
    assert not life.device.has_requests


def test_a_message_that_the_placement_does_not_have() -> None:
    """data: its request and those before it end; the source hears `fail` with `earlier`."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    wrong, frames = data("hidden_1", 1, request=101, phase="decode")
    (fail,) = sent(Fail, life.receive(wrong, b"a", frames))
    assert (fail.request, fail.earlier, fail.problem.where) == (101, True, "a -> b")
    assert not life.device.has_requests


def test_unreadable() -> None:
    """unreadable: requests in flight end; strangers and clients are refused."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    error = RunError("a message that cannot be read", cause="refused")
    (refusal,) = life.on(Unreadable(b"stranger", error))
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert life.device.has_requests
    (fail,) = sent(Fail, life.on(Unreadable(b"a", error)))
    assert fail.request is None
    assert not life.device.has_requests


def test_a_device_whose_consumer_is_not_connected() -> None:
    """computed: what cannot be sent ends its request."""
    life = Life("b")
    life.on(Loaded())
    life.greeted("a")
    life.link("a")
    life.receive(*_swap(data("hidden_1"), b"a"))
    (fail,) = sent(Fail, life.on(Computed(values("hidden_2"), 0.1)))
    assert (fail.request, fail.problem.cause) == (100, "lost-peer")
    assert not life.device.has_requests


# -- any device: acknowledgements and time


def test_ack() -> None:
    """ack: the link drops what arrived."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    (message,) = sent(Data, life.on(Computed(values("hidden_2"), 0.1)))
    assert life.receive(Ack(session=message.session, epoch=0, seq=1), "c") == []
    life.on(Disconnected("c"))
    assert sent(Data, life.link("c", expected=1)) == []


def test_tick() -> None:
    """tick: due acknowledgements leave."""
    life = middle()
    assert life.device.deadline is None
    life.receive(*_swap(data("hidden_1"), b"a"))
    life.on(Computed(values("hidden_2"), 0.1))
    assert life.device.deadline == pytest.approx(0.1)
    assert life.on(Tick(), after_s=0.05) == []
    assert sent(Ack, life.on(Tick(), after_s=0.05)) == [Ack(session=9, epoch=0, seq=1)]
    assert life.device.deadline is None


def test_a_device_that_always_computes_acknowledges() -> None:
    """Else its sender would stop after a window of messages."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    acknowledged: list[Ack] = []
    for seq in range(1, 20):
        opening = Opening(100 + seq, GREEDY)
        row = Row(100 + seq, 3 * (seq % 3), 0, 0, 3)
        life.receive(*_swap(data("hidden_1", seq, rows=(row,), open=(opening,)), b"a"))
        assert life.device.requests.computing is not None
        acknowledged += sent(Ack, life.on(Computed(values("hidden_2"), 0.1)))
        assert life.device.requests.computing is not None
    assert [ack.seq for ack in sent(Ack, life.commands)] == [8, 16]


# -- any device: the source tells


def test_close() -> None:
    """close: the request ends; its timings are reported if they are wanted."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    life.on(Computed(values("hidden_2"), 0.25))
    (timings,) = sent(Timings, life.receive(Close(request=100, report=True), b"a"))
    assert (timings.request, timings.device) == (100, "b")
    assert timings.columns[:3] == ("step", "started_s", "compute_s")
    assert not life.device.has_requests
    assert life.receive(Close(request=100, report=False), b"a") == []


def test_ping() -> None:
    """ping: `pong`, whoever asks."""
    life = source()
    (pong,) = life.receive(Ping(token=3), CLIENT_ROUTE)
    assert pong == Send(CLIENT_ROUTE, Pong(token=3, computing=False, doing="idle"))


def test_shutdown() -> None:
    """shutdown: the device leaves; the source tells every device before."""
    assert middle().receive(Shutdown(), b"a") == [Leave()]
    commands = source().receive(Shutdown(), CLIENT_ROUTE)
    assert commands == [Send(b"b", Shutdown()), Send(b"c", Shutdown()), Leave()]


@pytest.mark.parametrize(
    "message",
    [
        ready(),
        Unready(lost="c"),
        Pong(token=0, computing=False, doing=""),
        Fail(request=None, earlier=False, problem=Problem("bug", "x")),
        Timings(request=100, device="c", columns=(), values=()),
        Crossed(request=100, device="c", peer="a", step=0, values=()),
        submit([1, 2]),
        Cancel(ticket=TICKET),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_for_the_source_are_ignored_elsewhere(message: AnyMessage) -> None:
    """ready, unready, pong, fail, timings, crossed, submit, cancel: ignored."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    assert life.receive(message, b"a") == []
    assert life.device.has_requests


@pytest.mark.parametrize("message", [Close(request=100, report=True), Shutdown()], ids=["close", "shutdown"])
def test_only_the_source_closes_and_shuts_down(message: AnyMessage) -> None:
    """From other devices they are ignored."""
    life = Life("c")
    life.greeted("a")
    life.greeted("b")
    life.receive(*_swap(data("embed"), b"a"))
    assert life.receive(message, b"b") == []
    assert life.device.has_requests
    on_source = on_its_way()
    assert on_source.receive(message, b"b") == []
    assert on_source.device.has_requests


def test_devices_do_not_submit() -> None:
    """submit and cancel are a client's: from a device they are ignored."""
    life = source()
    assert life.receive(submit([1, 2]), b"b") == []
    assert life.receive(Fail(request=None, earlier=False, problem=Problem("bug", "x")), CLIENT_ROUTE) == []


# -- connections that close


def test_a_consumer_is_lost() -> None:
    """disconnected: the link is down; requests end here, and the source hears `unready`."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    assert life.on(Disconnected("c")) == [Send("a", Unready(lost="c"))]
    assert not life.device.has_requests


@pytest.mark.parametrize("origin", ["a", b"a"], ids=["to it", "from it"])
def test_the_source_is_lost(origin: Origin) -> None:
    """disconnected: requests end here; there is nobody to tell."""
    life = middle()
    life.receive(*_swap(data("hidden_1"), b"a"))
    assert life.on(Disconnected(origin)) == []
    assert not life.device.has_requests


def test_a_producer_is_lost() -> None:
    """disconnected: its consumer goes on; the producer itself tells the source."""
    life = Life("c")
    for name in ("a", "b"):
        life.greeted(name)
    life.receive(*_swap(data("embed"), b"a"))
    assert life.on(Disconnected(b"b")) == []
    assert life.device.has_requests


def test_a_client_is_lost() -> None:
    """disconnected, at the source: its requests are cancelled."""
    life = on_its_way()
    commands = life.on(Disconnected(CLIENT_ROUTE))
    assert sent(Close, commands) == [Close(request=100, report=False)] * 2
    assert not life.device.has_requests


@pytest.mark.parametrize(
    ("event", "gone"),
    [
        (Disconnected(b"b"), "b"),
        (Disconnected("b"), "b"),
        (Received(b"b", None, Unready(lost="c")), "c"),
    ],
    ids=["from it", "to it", "unready"],
)
def test_a_device_is_lost_at_the_source(event: Event, gone: str) -> None:
    """disconnected, unready, at the source: requests in flight end; nothing is opened until it is ready again."""
    life = on_its_way()
    (error,) = sent(Error, life.on(event))
    assert (error.problem.cause, error.problem.where) == ("lost-peer", gone)
    assert not life.device.has_requests
    assert opened(life, ticket=b"1" * 16) == []


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
    assert len(sent(Error, life.on(Disconnected("b")))) == 1
    assert opened(life, ticket=b"1" * 16) == []
    assert any(isinstance(command, Compute) for command in life.link("b"))


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


# -- the source: requests


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
    life.receive(*_swap(data("token", open=(Opening(100, GREEDY),)), b"c"))
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
    (crossed,) = sent(Crossed, life.receive(*_swap(data("hidden_1", trace=True), b"a")))
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
