"""Checks of one device alone: connections, messages and links, byte by byte."""

from __future__ import annotations

from typing import Any

import msgspec
import zmq
from msgspec.structs import replace

from partc.conformance.bench import Bench
from partc.conformance.bundles import HIDDEN, LENGTH, MOST
from partc.conformance.driven import OWN, driven, steps
from partc.conformance.findings import Mismatch, same
from partc.conformance.peer import Peer, bytes_of
from partc.format.message_parts import Row, TensorSpec
from partc.format.messages import Ack, Close, Data, Fail, Hello, Ping, Pong, Refuse, Welcome
from partc.format.role import load_role
from partc.runtime.core.events import Received
from partc.runtime.shell.keys import KeyPair, Keys, load_client_keys


def check_hello(bench: Bench, device: str) -> None:
    """Who the device says that it is, and what it runs."""
    role = load_role(bench.build("chain") / "devices" / OWN)
    with driven(bench) as alone:
        for peer, hello in alone.hellos.items():
            same((hello.v, hello.name), (2, OWN), f"version and name in the hello to {peer}")
            ids = bytes.fromhex(role.plan_id), bytes.fromhex(role.placement_id), 0
            same(
                (hello.plan, hello.placement, hello.epoch),
                ids,
                f"plan, placement, epoch in the hello to {peer}",
            )
        if len({hello.incarnation for hello in alone.hellos.values()}) > 1:
            raise Mismatch("hellos of one life have several incarnations")
        answer = alone.source.greet(OWN)
        if not isinstance(answer, Welcome):
            raise Mismatch(f"a second hello is answered by {answer}")
        same((answer.name, answer.epoch), (OWN, 0), "name and epoch in welcome")
        same(answer.incarnation, alone.hellos["a"].incarnation, "incarnation in welcome")


def check_values(bench: Bench, device: str) -> None:
    """Steps of two requests, one after the other: bits, rows, types, numbers."""
    with driven(bench) as alone:
        found = []
        for request, seq in ((1, 0), (5, 4)):
            found += [alone.computes(message) for message in steps(alone, 4, request, seq)]
            alone.source.send(OWN, Close(request=request, report=False))
        same([message.seq for message in found], list(range(8)), "numbers of what was sent on")
        same(
            {message.session for message in found},
            {alone.hellos["c"].session},
            "sessions of what was sent on",
        )
        same({message.epoch for message in found}, {0}, "epochs of what was sent on")


def check_repeated(bench: Bench, device: str) -> None:
    """A frame that comes twice is taken once."""
    with driven(bench) as alone:
        first, second, *_ = steps(alone, 2)
        alone.computes(first)
        alone.give(first)
        alone.last.gets_none(Data)
        alone.computes(second)


def check_order(bench: Bench, device: str) -> None:
    """A frame that overtakes another one waits for it."""
    with driven(bench) as alone:
        first, second, *_ = steps(alone, 2)
        alone.give(second)
        alone.last.gets_none(Data)
        alone.give(first)
        for message in (first, second):
            came = alone.taken()
            same(bytes_of(came.frames), [alone.expected(message)], "hidden_2 behind a frame that came early")


def check_ack(bench: Bench, device: str) -> None:
    """What has arrived is acknowledged, after 100 ms at the latest, and after 8 frames."""
    with driven(bench) as alone:
        messages = steps(alone, 12)
        alone.computes(messages[0])
        ack = alone.source.received(Ack, 1.0).message
        assert isinstance(ack, Ack)
        same((ack.session, ack.epoch, ack.seq), (alone.source.session, 0, 1), "session, epoch and seq of ack")
        for message in messages[1:]:
            alone.computes(message)
        last = 1
        while last < 12:
            ack = alone.source.received(Ack, 1.0).message
            assert isinstance(ack, Ack)
            if ack.seq <= last:
                raise Mismatch(f"ack goes from {last} to {ack.seq}")
            last = ack.seq


def check_again(bench: Bench, device: str) -> None:
    """What was not acknowledged comes again on a new connection, from the number that `welcome` names."""
    with driven(bench) as alone:
        messages = steps(alone, 3)
        for message in messages:
            alone.computes(message)
        alone.last.transport.close()
        with Peer(bench.build("chain"), "c") as last:
            last.transport.listen(alone.last_address)
            hello = last.received(Hello)
            same(getattr(hello.message, "session", None), alone.hellos["c"].session, "session after a gap")
            last.send(hello.origin, Welcome(name="c", incarnation=1, epoch=0, next=1, info={}))
            found = [last.received(Data) for _ in range(2)]
            same([getattr(each.message, "seq", None) for each in found], [1, 2], "frames that came again")


def check_strange_frames(bench: Bench, device: str) -> None:
    """Frames of another session, of another epoch, or ahead of hello are dropped."""
    with driven(bench) as alone:
        first, second, *_ = steps(alone, 2)
        alone.give(replace(first, session=alone.source.session + 1000))
        alone.last.gets_none(Data)
        alone.give(replace(first, epoch=7))
        alone.last.gets_none(Data)
        alone.computes(first)
        alone.computes(second)


def check_closed(bench: Bench, device: str) -> None:
    """What comes late for a request that is over is ignored; so is a number below that of the slot's request."""
    with driven(bench) as alone:
        first, second, third, *_ = steps(alone, 3, request=9)
        alone.computes(first)
        alone.computes(second)
        alone.source.send(OWN, Close(request=9, report=False))
        alone.give(third)
        alone.last.gets_none(Data)
        alone.give(alone.data(seq=3, request=4, tokens=2))
        alone.last.gets_none(Data)
        alone.computes(alone.data(seq=4, request=10, tokens=2))


def check_ping(bench: Bench, device: str) -> None:
    """`pong` has the number of `ping`."""
    with driven(bench) as alone:
        for token in (0, 77, 2**53):
            alone.source.send(OWN, Ping(token=token))
            pong = alone.source.received(Pong, 2.0).message
            same(getattr(pong, "token", None), token, "token of pong")


_GOOD = TensorSpec("hidden_1", "float32", (1, 2, HIDDEN))
_BYTES = bytes(2 * HIDDEN * 4)
FAULTS: dict[str, tuple[dict[str, Any], bytes]] = {
    "another type": (
        {"values": (TensorSpec("hidden_1", "float16", (1, 2, HIDDEN)),)},
        _BYTES[: len(_BYTES) // 2],
    ),
    "another shape": (
        {"values": (TensorSpec("hidden_1", "float32", (1, 3, HIDDEN)),)},
        _BYTES + bytes(HIDDEN * 4),
    ),
    "fewer bytes": ({"values": (_GOOD,)}, _BYTES[:-4]),
    "more bytes": ({"values": (_GOOD,)}, _BYTES + bytes(4)),
    "another value": ({"values": (TensorSpec("hidden_2", "float32", (1, 2, HIDDEN)),)}, _BYTES),
    "a size beyond the plan": ({"dims": {"batch": 1, "sequence": 2, "source": 2}}, _BYTES),
    "no opening": ({"open": ()}, _BYTES),
    "another phase": ({"phase": "encode"}, _BYTES),
    "decode at first": ({"phase": "decode"}, _BYTES),
    "a slot that is none": ({"rows": (Row(1, MOST * MOST, 0, 0, 2),)}, _BYTES),
    "a row within a slot": ({"rows": (Row(1, 1, 0, 0, 2),)}, _BYTES),
    "a position beyond the cache": ({"rows": (Row(1, 0, 0, LENGTH - 1, 2),)}, _BYTES),
    "no new token": ({"rows": (Row(1, 0, 0, 0, 0),)}, _BYTES),
    "more new tokens than rows": ({"rows": (Row(1, 0, 0, 0, 3),)}, _BYTES),
}
"""What is wrong → fields of a first step, and its tensor."""


def check_refused_data(bench: Bench, device: str) -> None:
    """Each broken rule ends the requests in flight: `fail` to the source, whose problem names the link."""
    for what, (changes, frame) in FAULTS.items():
        with driven(bench) as alone:
            alone.give(alone.data(seq=0, tokens=2, **changes), frame)
            try:
                fail = alone.source.received(Fail, 3.0).message
            except Mismatch as error:
                raise Mismatch(f"{what}: no `fail`; {error}") from None
            assert isinstance(fail, Fail)
            same(fail.problem.cause, "refused", f"{what}: cause in `fail`")
            alone.last.gets_none(Data, 0.05)


def check_jumps(bench: Bench, device: str) -> None:
    """A step that does not follow the one before, in number or position, is refused."""
    for what, step, position in (("number", 3, 3), ("position", 1, 4)):
        with driven(bench) as alone:
            alone.computes(alone.data(seq=0, tokens=2))
            alone.give(alone.data(seq=1, step=step, position=position))
            try:
                alone.source.received(Fail, 1.5)
            except Mismatch:
                if what == "position":
                    raise
                alone.last.gets_none(Data, 0.05)  # a later step may wait for those between


UNREADABLE: dict[str, object] = {
    "no map": [1, 2],
    "no kind": {"v": 2},
    "an unknown kind": {"kind": "sleep"},
    "a field too many": {"kind": "ping", "token": 1, "more": 2},
    "another type": {"kind": "close", "request": "one", "report": False},
    "an extension": {"kind": "ping", "token": msgspec.msgpack.Ext(1, b"x")},
}


def check_unreadable(bench: Bench, device: str) -> None:
    """Headers that break the rules of frames are refused, and the connection lives."""
    for what, header in UNREADABLE.items():
        with driven(bench) as alone:
            alone.source.transport.send_frames(OWN, [msgspec.msgpack.encode(header)])
            try:
                alone.source.received(lambda message: isinstance(message, Fail | Refuse), 3.0)
            except Mismatch as error:
                raise Mismatch(f"{what}: neither `fail` nor `refuse`; {error}") from None
            alone.source.send(OWN, Ping(token=3))
            alone.source.received(Pong, 3.0)


def _unknown(build_keys: Keys) -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(KeyPair(public.decode(), secret.decode()), build_keys.peers)


def check_keys(bench: Bench, device: str) -> None:
    """Nobody gets through with a key that the device does not know."""
    build = bench.build("chain")
    with driven(bench) as alone, Peer(build, "client", _unknown(load_client_keys(build))) as stranger:
        stranger.transport.connect(OWN, alone.address)
        stranger.stays_out()
        alone.computes(alone.data(seq=0, tokens=2))


def check_names(bench: Bench, device: str) -> None:
    """`hello` must bear the name of its key; a device takes no client unless it is the source."""
    build = bench.build("chain")
    with driven(bench) as alone, Peer(build, "c") as other:
        other.connect(OWN, alone.address)
        answer = other.greet(OWN, name="a")
        if not isinstance(answer, Refuse):
            raise Mismatch(f"the key of c greeted as a, and was answered by {answer}")
        same(answer.problem.cause, "refused", "cause in refuse")
    with driven(bench) as alone, Peer(build, "c") as other:
        other.connect(OWN, alone.address)
        other.send(OWN, alone.data(seq=0, tokens=2), _BYTES)
        alone.last.gets_none(Data)
        alone.computes(alone.data(seq=0, tokens=2))


def check_builds(bench: Bench, device: str) -> None:
    """Another build, another placement of the same epoch: refused."""
    for name in ("plan", "placement"):
        with driven(bench) as alone, Peer(bench.build("chain"), "a") as other:
            other.connect(OWN, alone.address)
            answer = other.greet(OWN, **{name: bytes(32)})
            if not isinstance(answer, Refuse):
                raise Mismatch(f"another {name} in hello was answered by {answer}")


def check_version(bench: Bench, device: str) -> None:
    """Another version of the wire is refused."""
    hello = {
        "kind": "hello", "v": 3, "name": "a", "session": 99, "plan": bytes(32), "placement": bytes(32),
        "epoch": 0, "incarnation": 1,
    }  # fmt: skip
    with driven(bench) as alone, Peer(bench.build("chain"), "a") as other:
        other.connect(OWN, alone.address)
        other.transport.send_frames(OWN, [msgspec.msgpack.encode(hello)])
        answer = other.received(Refuse, 3.0)
        assert isinstance(answer, Received)


def check_large(bench: Bench, device: str) -> None:
    """A frame far beyond what the build allows closes the connection, before memory is taken for it."""
    with driven(bench) as alone, Peer(bench.build("chain"), "a") as other:
        other.connect(OWN, alone.address)
        other.transport.send_frames(OWN, [bytes(10_000_000)])
        other.hangs_up()
