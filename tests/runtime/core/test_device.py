"""A device as a whole: each test is a row of the table in `core/device/device.py`, as any device has it."""

from __future__ import annotations

import re
from typing import get_args

import numpy as np
import pytest

from partc.errors import RunError
from partc.format.message_parts import Opening, Problem, Row
from partc.format.messages import (
    CLIENT,
    Ack,
    AnyMessage,
    Cancel,
    Close,
    Crossed,
    Data,
    Fail,
    Hello,
    MeasuringReply,
    MeasuringRequest,
    Ping,
    Pong,
    Ready,
    Refuse,
    Shutdown,
    SourceReply,
    Timings,
    Unready,
    Welcome,
)
from partc.runtime.core.commands import Announce, Compute, Draw, Leave, Send
from partc.runtime.core.device import device as device_module
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
from tests.runtime.bundles import VOCABULARY
from tests.runtime.core.life import (
    CLIENT_ROUTE,
    PLACEMENT,
    Life,
    arrived,
    data,
    middle,
    on_its_way,
    ready,
    sent,
    source,
    values,
)
from tests.runtime.core.roles import GREEDY, TICKET, hello, submit

# -- joining


def test_loaded() -> None:
    """loaded: `ready` once all links stand."""
    life = Life("b")
    life.link("a")
    assert sent(Ready, life.link("c")) == []
    commands = life.on(Loaded())
    assert sent(Ready, commands) == [Ready(next_request=0, placement=PLACEMENT, epoch=0, incarnation=5)]
    assert Announce() in commands


def test_connected() -> None:
    """connected: the link greets."""
    (greeting,) = sent(Hello, Life("b").on(Connected("c")))
    assert (greeting.name, greeting.incarnation) == ("b", 5)


def test_welcome() -> None:
    """welcome: the link repeats what was not acknowledged; `ready` once all stand."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    life.on(Computed(values("hidden_2"), 0.1))
    (first,) = sent(Data, life.commands)
    life.on(Disconnected("c"))
    commands = life.link("c", expected=0)
    assert sent(Data, commands) == [first]
    assert len(sent(Ready, commands)) == 1
    assert Announce() not in commands


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
    life.receive(*arrived(data("hidden_1"), b"a"))
    (fail,) = sent(Fail, life.on(event))
    assert (fail.request, fail.problem.cause) == (None, "refused")
    assert not life.device.has_requests


# -- steps


def test_data() -> None:
    """data: step 0 opens its request, which goes on."""
    life = middle()
    (compute,) = life.receive(*arrived(data("hidden_1"), b"a"))
    assert isinstance(compute, Compute)
    assert (compute.submodule, compute.slot, compute.resets) == ("part_1", 0, True)
    assert life.device.has_requests


def test_computed() -> None:
    """computed: the step goes on: sends, next sub-module, end."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    (message,) = sent(Data, life.on(Computed(values("hidden_2"), 0.1)))
    assert [spec.name for spec in message.values] == ["hidden_2"]
    (compute,) = life.receive(*arrived(data("hidden_1", 1, step=1), b"a"))
    assert isinstance(compute, Compute)
    assert not compute.resets


def test_a_step_that_samples() -> None:
    """computed: a sub-module, then a draw, then a message."""
    life = Life("c")
    life.on(Loaded())
    for name in ("a", "b"):
        life.greeted(name)
    life.link("a")
    life.receive(*arrived(data("embed"), b"a"))
    (compute,) = life.receive(*arrived(data("hidden_2"), b"b"))
    assert isinstance(compute, Compute)
    (draw,) = life.on(Computed([np.zeros((1, 1, VOCABULARY), np.float32)], 0.1))
    assert isinstance(draw, Draw)
    (message,) = sent(Data, life.on(Computed([np.array([4])], 0.1)))
    assert [spec.name for spec in message.values] == ["token"]


def test_while_the_engine_works() -> None:
    """Every event is handled as ever; no second `Compute`."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    row = (Row(101, 3, 0, 0, 3),)
    opening = (Opening(101, GREEDY),)
    assert life.receive(*arrived(data("hidden_1", 1, rows=row, open=opening), b"a")) == []
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
    life.receive(*arrived(data("hidden_1"), b"a"))
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
    life.receive(*arrived(data("hidden_1"), b"a"))
    wrong, frames = data("hidden_1", 1, request=101, phase="decode")
    (fail,) = sent(Fail, life.receive(wrong, b"a", frames))
    assert (fail.request, fail.earlier, fail.problem.where) == (101, True, "a -> b")
    assert not life.device.has_requests


def test_unreadable() -> None:
    """unreadable: requests in flight end; strangers and clients are refused."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    error = RunError("a message that cannot be read", cause="refused")
    (refusal,) = life.on(Unreadable(b"stranger", error))
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Refuse)
    assert life.device.has_requests
    (fail,) = sent(Fail, life.on(Unreadable(b"a", error)))
    assert fail.request is None
    assert not life.device.has_requests


def test_a_device_whose_consumer_is_not_connected() -> None:
    """computed: what cannot be sent waits for its link."""
    life = Life("b")
    life.on(Loaded())
    life.greeted("a")
    life.link("a")
    life.receive(*arrived(data("hidden_1"), b"a"))
    assert life.on(Computed(values("hidden_2"), 0.1)) == []
    assert life.device.has_requests
    assert len(sent(Data, life.link("c"))) == 1


# -- acknowledgements and time


def test_ack() -> None:
    """ack: the link drops what arrived."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    (message,) = sent(Data, life.on(Computed(values("hidden_2"), 0.1)))
    assert life.receive(Ack(session=message.session, epoch=0, seq=1), "c") == []
    life.on(Disconnected("c"))
    assert sent(Data, life.link("c", expected=1)) == []


def test_tick() -> None:
    """tick: due acknowledgements leave."""
    life = middle()
    assert life.device.deadline is None
    life.receive(*arrived(data("hidden_1"), b"a"))
    life.on(Computed(values("hidden_2"), 0.1))
    assert life.device.deadline == pytest.approx(0.1)
    assert life.on(Tick(), after_s=0.05) == []
    assert sent(Ack, life.on(Tick(), after_s=0.05)) == [Ack(session=9, epoch=0, seq=1)]
    assert life.device.deadline is None


def test_a_device_that_always_computes_acknowledges() -> None:
    """Else its sender would stop after a window of messages."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    acknowledged: list[Ack] = []
    for seq in range(1, 20):
        opening = Opening(100 + seq, GREEDY)
        row = Row(100 + seq, 3 * (seq % 3), 0, 0, 3)
        life.receive(*arrived(data("hidden_1", seq, rows=(row,), open=(opening,)), b"a"))
        assert life.device.requests.computing is not None
        acknowledged += sent(Ack, life.on(Computed(values("hidden_2"), 0.1)))
        assert life.device.requests.computing is not None
    assert [ack.seq for ack in sent(Ack, life.commands)] == [8, 16]


# -- the source tells


def test_close() -> None:
    """close: the request ends; its timings are reported if they are wanted."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
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
    life.receive(*arrived(data("hidden_1"), b"a"))
    assert life.receive(message, b"a") == []
    assert life.device.has_requests


@pytest.mark.parametrize("message", [Close(request=100, report=True), Shutdown()], ids=["close", "shutdown"])
def test_only_the_source_closes_and_shuts_down(message: AnyMessage) -> None:
    """From other devices they are ignored."""
    life = Life("c")
    life.link("a")
    life.greeted("a")
    life.greeted("b")
    life.receive(*arrived(data("embed"), b"a"))
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
    """disconnected: the link is down; requests wait for it, and the source hears `unready`."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    assert life.on(Disconnected("c")) == [Send("a", Unready(lost="c"))]
    assert life.on(Computed(values("hidden_2"), 0.1)) == []
    commands = life.link("c")
    assert len(sent(Data, commands)) == len(sent(Ready, commands)) == 1


@pytest.mark.parametrize("origin", ["a", b"a"], ids=["to it", "from it"])
def test_the_source_is_lost(origin: Origin) -> None:
    """disconnected: there is nobody to tell; requests go on, since the source may only be out of reach."""
    life = middle()
    life.receive(*arrived(data("hidden_1"), b"a"))
    assert life.on(Disconnected(origin)) == []
    assert life.device.has_requests


def test_a_producer_is_lost() -> None:
    """disconnected: its consumer goes on; the producer itself tells the source."""
    life = Life("c")
    life.link("a")
    for name in ("a", "b"):
        life.greeted(name)
    life.receive(*arrived(data("embed"), b"a"))
    assert life.on(Disconnected(b"b")) == []
    assert life.device.has_requests


# -- the table in the docstring


def test_the_table_has_every_event_and_every_message_to_a_device() -> None:
    table = device_module.__doc__ or ""
    clients = {*get_args(SourceReply), *get_args(MeasuringReply), *get_args(MeasuringRequest)}
    kinds = set(get_args(AnyMessage)) - clients | {Ping, Pong, Shutdown}
    assert [kind for kind in kinds if f"`{kind.__struct_config__.tag}`" not in table] == []
    events = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.__name__).lower() for event in get_args(Event)]
    assert [event for event in events if not re.search(rf"^\| (.*, )?{event}\b", table, re.MULTILINE)] == [
        "received"
    ]


def test_the_table_has_nothing_else() -> None:
    """Every name in its first column is that of an event or a message, and stands there once."""
    table = device_module.__doc__ or ""
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][2:]
    names = [name.strip() for row in rows for name in row.split(",")]
    events = {re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.__name__).lower() for event in get_args(Event)}
    messages = {f"`{kind.__struct_config__.tag}`" for kind in get_args(AnyMessage)}
    assert set(names) - events - messages == set()
    assert len(names) == len(set(names))
