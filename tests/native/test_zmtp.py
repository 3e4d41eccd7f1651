"""The native runner's own ZMTP against ends that break its rules, and beside itself and libzmq."""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from partc.format.codec import encode
from partc.runtime.core.events import Connected
from partc.runtime.shell.keys import load_device_keys
from partc.runtime.shell.transport import Transport
from tests.native.transports import HELLO, LIMIT, PATIENCE_S, Native, device, until
from tests.native.zmtp import COMMAND, LONG, MORE, Peer, command, frame, greeting, ready, split

pytestmark = pytest.mark.native

HEADER = encode(HELLO)
PING = command(b"PING", b"\0\0")
START = greeting() + ready()


@pytest.fixture
def start(program_file: Path) -> Iterator[Callable[..., Native]]:
    with ExitStack() as stack:

        def started(bundle: Path | None = None, kind: str = "zmtp", patience_s: float = PATIENCE_S) -> Native:
            native = Native(program_file, bundle, kind, patience_s=patience_s)
            stack.callback(native.end)
            return native

        yield started


@pytest.fixture
def knock() -> Iterator[Callable[[str], Peer]]:
    with ExitStack() as stack:

        def connected(address: str) -> Peer:
            peer = Peer(address)
            stack.callback(peer.socket.close)
            return peer

        yield connected


def adds(told: list[Any], events: list[Any]) -> bool:
    """Take events as told; False, to go on with what else is asked."""
    told.extend(events)
    return False


def events_of(native: Native, count: int) -> list[Any]:
    """As many events as are expected, and whatever came with them."""
    found: list[Any] = []
    until(lambda: adds(found, native.poll()) or len(found) >= count)
    return found


def hangs_up(native: Native, peer: Peer) -> bool:
    """Whether the runner closes a connection at once, without a word to those above."""
    told: list[Any] = []
    until(lambda: adds(told, native.poll()) or peer.is_closed())
    return not told


BAD_GREETINGS = {
    "old": b"\x01\x00",
    "no ZMTP": b"GET / HTTP/1.1\r\n\r\n",
    "signature": greeting(signature=b"\xff" + bytes(8) + b"\x7e"),
    "version 2": greeting(major=2),
    "other mechanism": greeting(b"PLAIN"),
    "longer name": greeting(b"NULLS"),
}
BAD_HANDSHAKES = {
    "a message": frame(0, b"hello"),
    "more": frame(COMMAND | MORE, b"\x05READY"),
    "reserved flag": frame(COMMAND | 8, b"\x05READY"),
    "empty": frame(COMMAND, b""),
    "name beyond the end": frame(COMMAND, b"\x09READY"),
    "no name": frame(COMMAND, b"\x00READY"),
    "unknown": command(b"HELLO"),
    "no properties": command(b"READY"),
    "wrong socket": ready(b"PUB"),
    "half a property": command(b"READY", b"\x0bSocket-Type\0\0\0\xffDEALER"),
    "too long": bytes([COMMAND | LONG]) + struct.pack(">Q", 1025),
    "2^63 long": bytes([COMMAND | LONG]) + struct.pack(">Q", 1 << 63),
}
BAD_FRAMES = {
    "reserved flag": frame(8, b""),
    "2^63 long": bytes([LONG]) + struct.pack(">Q", 1 << 63),
    "2^64 - 1 long": bytes([LONG]) + struct.pack(">Q", (1 << 64) - 1),
    "beyond the limit": bytes([LONG]) + struct.pack(">Q", LIMIT + 1),
    "command with more": frame(COMMAND | MORE, b"\x04PONG"),
    "empty command": frame(COMMAND, b""),
    "PING without time": command(b"PING", b"\0"),
    "long context": command(b"PING", bytes(2 + 17)),
}


def test_bad_greetings_and_handshakes_end_their_connection_alone(start: Any, knock: Any) -> None:
    native = start()
    address = native.listen()
    good = knock(address)
    good.send(START + frame(0, HEADER))
    assert events_of(native, 1)[0][0] == "received"
    bad = [*BAD_GREETINGS.items(), *((name, greeting() + data) for name, data in BAD_HANDSHAKES.items())]
    for name, data in bad:
        peer = knock(address)
        peer.send(data)
        assert hangs_up(native, peer), name
    good.send(frame(0, HEADER))
    assert events_of(native, 1)[0][0] == "received"


def test_bad_frames_end_their_connection_behind_what_came_before(start: Any, knock: Any) -> None:
    native = start()
    address = native.listen()
    for name, data in BAD_FRAMES.items():
        peer = knock(address)
        peer.send(START + frame(0, HEADER) + data + frame(0, HEADER))
        told = events_of(native, 2)
        assert [event[0] for event in told] == ["received", "disconnected"], name
        until(peer.is_closed)


def test_bytes_may_come_one_by_one(start: Any, knock: Any) -> None:
    native = start()
    peer = knock(native.listen())
    peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    told: list[Any] = []
    whole = START + frame(MORE, HEADER) + PING + frame(MORE, b"") + frame(0, b"x" * 300)
    for byte in whole:
        peer.send(bytes([byte]))
        told += native.ask(poll=0)["events"]
    told += events_of(native, 1 - len(told))
    assert [event[0] for event in told] == ["received"]
    assert told[0][4] == ["", "78" * 300]


def test_ping_is_answered_with_its_context_and_unknown_commands_mean_nothing(start: Any, knock: Any) -> None:
    native = start()
    peer = knock(native.listen())
    peer.send(START + command(b"PING", b"\0\0" + b"sixteen letters!") + command(b"NEWS", b"?"))
    until(lambda: native.poll() or len(peer.frames()) == 2)
    (_, first), pong = peer.frames()
    assert first.startswith(b"\x05READY")
    assert pong == (COMMAND, b"\x04PONGsixteen letters!")


def test_who_is_silent_is_asked_and_given_up(start: Any, knock: Any) -> None:
    native = start(patience_s=0.2)
    peer = knock(native.listen())
    peer.send(START + frame(0, HEADER))
    began = time.monotonic()
    told = events_of(native, 2)
    assert [event[0] for event in told] == ["received", "disconnected"]
    assert 0.3 <= time.monotonic() - began < 20
    assert (COMMAND, b"\x04PING\0\0") in peer.frames()


def test_the_time_that_a_ping_tells_is_kept(start: Any, knock: Any) -> None:
    native = start()
    peer = knock(native.listen())
    peer.send(START + frame(0, HEADER) + command(b"PING", b"\0\x02"))
    told = events_of(native, 2)
    assert [event[0] for event in told] == ["received", "disconnected"]


def test_lengths_alone_take_no_memory(start: Any, knock: Any) -> None:
    native = start()
    address = native.listen()
    peers = [knock(address) for _ in range(64)]
    for peer in peers:
        peer.send(START + frame(0, HEADER))
        events_of(native, 1)
    before = native.resident_kib()
    for peer in peers:
        peer.send(bytes([LONG]) + struct.pack(">Q", LIMIT) + b"x")
    for _ in range(len(peers)):
        native.ask(poll=1)
    assert native.resident_kib() - before < LIMIT // 1024 * len(peers) // 8


def test_slow_readers_get_everything_and_stop_nobody(start: Any, knock: Any) -> None:
    native = start()
    address = native.listen()
    slow, quick = knock(address), knock(address)
    slow.send(START + frame(0, HEADER))
    route = events_of(native, 1)[0][1]
    body = bytes(range(256)) * 2048
    for number in range(8):
        assert native.send(route, HELLO, [bytes([number]) + body], route=True)
    quick.send(START + frame(0, HEADER))
    assert events_of(native, 1)[0][0] == "received"
    until(lambda: native.poll() or len(slow.frames()) == 1 + 2 * 8)
    bodies = [body for _, body in slow.frames()[2::2]]
    assert bodies == [bytes([number]) + body for number in range(8)]


def test_floods_leave_others_their_turn(start: Any, knock: Any) -> None:
    native = start()
    address = native.listen()
    flood, other = knock(address), knock(address)
    count = 6000
    flood.send(START)
    rest = memoryview(frame(0, bytes(100)) * count)
    told: list[str] = []

    def turn() -> bool:
        nonlocal rest
        flood.socket.setblocking(False)
        with suppress(BlockingIOError):
            rest = rest[flood.socket.send(rest) :] if rest else rest
        is_first = not told
        told.extend(event[0] for event in native.ask(poll=10)["events"])
        if is_first and told:
            other.send(START + frame(0, HEADER))
        return len(told) > count

    until(turn)
    assert told.count("unreadable") == count
    assert told.index("received") < count


BAD_CURVE = {
    "no HELLO": command(b"INITIATE", bytes(248)),
    "short": command(b"HELLO", b"\x01\0" + bytes(191)),
    "long": command(b"HELLO", b"\x01\0" + bytes(193)),
    "version": command(b"HELLO", b"\x02\0" + bytes(192)),
    "nonce of zero": command(b"HELLO", b"\x01\0" + bytes(192)),
    "no key": command(b"HELLO", b"\x01\0" + bytes(103) + b"\x01" + bytes(80) + b"forged!!"),
    "key of low order": command(b"HELLO", b"\x01\0" + bytes(72) + b"\x01" + bytes(38) + b"\x01" + bytes(80)),
    "a message": frame(0, b"\x07MESSAGE" + bytes(40)),
    "an error": command(b"ERROR", b"\x00"),
}


def test_who_proves_no_key_is_hung_up_on(start: Any, knock: Any, build: Path) -> None:
    native = start(device(build, "board"))
    address = native.listen()
    for name, data in {**BAD_GREETINGS, "in the clear": greeting()}.items():
        peer = knock(address)
        peer.send(data)
        assert hangs_up(native, peer), name
    for name, data in BAD_CURVE.items():
        peer = knock(address)
        peer.send(greeting(b"CURVE") + data)
        assert hangs_up(native, peer), name


class Relay:
    """A connection through us: what passes can be looked at, and changed."""

    def __init__(self) -> None:
        """Wait for the one who connects."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._ends: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.forward = b""
        """What the one who connected has sent, which is passed on but for what `hold` keeps back."""
        self.hold = False

    def pass_on(self, address: str) -> None:
        """Move what lies ready."""
        if not self._ends:
            try:
                near, _ = self._listener.accept()
            except BlockingIOError:
                return
            host, _, port = address.rpartition(":")
            self._ends = [near, socket.create_connection((host, int(port)))]
            for end in self._ends:
                end.setblocking(False)
        near, far = self._ends
        for source, sink in ((near, far), (far, near)):
            try:
                data = source.recv(1 << 16)
            except (BlockingIOError, ConnectionResetError):
                continue
            if source is near:
                self.forward += data
            if not (self.hold and source is near):
                sink.setblocking(True)
                sink.sendall(data)
                sink.setblocking(False)

    def send(self, data: bytes) -> None:
        """Send to the one who listens."""
        self._ends[1].setblocking(True)
        self._ends[1].sendall(data)
        self._ends[1].setblocking(False)

    def close(self) -> None:
        """Hang up on both."""
        for end in (*self._ends, self._listener):
            end.close()


@pytest.mark.parametrize("fault", ["again", "changed", "cut", "left out", "out of order"])
def test_frames_that_were_tampered_with_end_the_connection(start: Any, build: Path, fault: str) -> None:
    native = start(device(build, "board"))
    address = native.listen()
    python = Transport(load_device_keys(device(build, "phone")), LIMIT, PATIENCE_S)
    relay = Relay()
    python.connect("board", relay.address)
    told: list[Any] = []
    theirs: list[Any] = []

    def turn() -> bool:
        relay.pass_on(address)
        told.extend(native.ask(poll=1)["events"])
        return adds(theirs, python.poll(0.001))

    until(lambda: turn() or Connected("board") in theirs)
    python.send("board", HELLO)
    until(lambda: turn() or told)
    relay.hold, relay.forward = True, b""
    python.send("board", HELLO, [b"one"])
    python.send("board", HELLO, [b"two"])
    until(lambda: turn() or len(split(relay.forward)) >= 4)
    first, second = [whole for _, _, whole in split(relay.forward)][:2]
    damaged = {
        "again": [first, second, first, second],
        "changed": [first[:-1] + bytes([first[-1] ^ 1]), second],
        "cut": [first, second[:-1]],
        "left out": [second],
        "out of order": [second, first],
    }
    relay.send(b"".join(damaged[fault]))
    if fault == "cut":
        relay.close()
    until(lambda: adds(told, native.poll()) or told[-1][0] == "disconnected")
    expected = 2 if fault == "again" else 1
    assert [event[0] for event in told] == ["received"] * expected + ["disconnected"]
    python.close()
    relay.close()


@pytest.mark.parametrize("kinds", [("zmtp", "zmtp"), ("zmtp", "zmq"), ("zmq", "zmtp")])
@pytest.mark.parametrize("encrypted", [True, False])
def test_both_kinds_talk_to_each_other(
    start: Any, build: Path, kinds: tuple[str, str], *, encrypted: bool
) -> None:
    server = start(device(build, "board") if encrypted else None, kinds[0])
    client = start(device(build, "phone") if encrypted else None, kinds[1])
    client.ask(connect="board", address=server.listen())
    told: list[Any] = []
    until(lambda: server.poll() or adds(told, client.poll()) or told)
    assert told == [["connected", "board"]]
    frames = [b"", b"x", bytes(range(256)) * 4096]
    assert client.send("board", HELLO, frames)
    came = events_of(server, 1)[0]
    assert came[2:] == ["phone" if encrypted else "", HEADER.hex(), [each.hex() for each in frames]]
    assert server.send(came[1], HELLO, frames, route=True)
    answer = events_of(client, 1)[0]
    assert answer[:2] == ["received", "board"]
    assert answer[4] == [each.hex() for each in frames]


def test_a_client_comes_back_when_its_server_does(start: Any, build: Path) -> None:
    client = start(device(build, "phone"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    client.ask(connect="board", address=address)
    client.ask(poll=50)
    for _ in range(2):
        assert life_of_a_server(client, address, device(build, "board")) == ["connected", "disconnected"]


def life_of_a_server(client: Native, address: str, bundle: Path) -> list[str]:
    """The events of a client while a server comes and goes."""
    server = Transport(load_device_keys(bundle), LIMIT, PATIENCE_S)
    server.listen(address)
    told: list[Any] = []
    until(lambda: server.poll(0.0) or adds(told, client.poll()) or told)
    server.close()
    until(lambda: adds(told, client.poll()) or len(told) > 1)
    return [event[0] for event in told]


def test_names_are_looked_up_and_those_that_nobody_knows_harm_nobody(start: Any, build: Path) -> None:
    native = start(device(build, "phone"))
    assert native.ask(connect="board", address="nobody.invalid:5555") == {}
    assert not native.ask(poll=50)["events"]
    python = Transport(load_device_keys(device(build, "board")), LIMIT, PATIENCE_S)
    port = python.listen("127.0.0.1:0").rpartition(":")[2]
    native.ask(connect="board", address=f"localhost:{port}")
    until(lambda: python.poll(0.0) or ["connected", "board"] in native.poll())
    python.close()


def test_a_thousand_silent_connections_keep_nobody_out(start: Any, knock: Any, build: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    native = start(device(build, "board"))
    address = native.listen()
    python = Transport(load_device_keys(device(build, "phone")), LIMIT, PATIENCE_S)
    silent = [knock(address) for _ in range(1000)]
    for peer in silent[::2]:
        peer.send(greeting(b"CURVE"))
    python.connect("board", address)
    told: list[Any] = []
    until(lambda: native.poll() or adds(told, python.poll(0.0)) or told)
    assert told == [Connected("board")]
    python.send("board", HELLO)
    assert events_of(native, 1)[0][0] == "received"
    python.close()


def test_without_files_left_the_oldest_silent_connection_gives_way(
    start: Any, knock: Any, build: Path
) -> None:
    native = start(device(build, "board"))
    native.limit_files(24)
    address = native.listen()
    for _ in range(100):
        knock(address)
    python = Transport(load_device_keys(device(build, "phone")), LIMIT, PATIENCE_S)
    python.connect("board", address)
    told: list[Any] = []
    until(lambda: native.poll() or adds(told, python.poll(0.0)) or told)
    assert told == [Connected("board")]
    python.close()
