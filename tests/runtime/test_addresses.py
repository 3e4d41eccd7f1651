"""Where devices are: as others see this one, and connections to those that move."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from partc.errors import RunError
from partc.format.address import has_port
from partc.format.messages import Ping
from partc.format.role import load_role
from partc.runtime.core.events import Connected, Disconnected, Received
from partc.runtime.shell.addresses import address_towards, known_addresses
from partc.runtime.shell.transport import Event, Transport
from tests.runtime.bundles import language_model

PEER = "127.0.0.1:9"


@pytest.mark.parametrize(
    ("listening", "advertised", "found"),
    [
        ("192.0.2.7:5555", None, "192.0.2.7:5555"),
        ("192.0.2.7:5555", "phone.example", "phone.example:5555"),
        ("192.0.2.7:5555", "198.51.100.4:80", "198.51.100.4:80"),
        ("192.0.2.7:5555", "[2001:db8::1]", "[2001:db8::1]:5555"),
        ("0.0.0.0:5555", None, ""),
        ("*:5555", None, ""),
        ("[::]:5555", None, ""),
        ("0.0.0.0:5555", "198.51.100.4", "198.51.100.4:5555"),
    ],
)
def test_the_address_towards_a_peer(listening: str, advertised: str | None, found: str) -> None:
    assert address_towards(PEER, listening, advertised) == found


def test_a_device_on_all_interfaces_tells_the_one_towards_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partc.runtime.shell.addresses._local_host", lambda peer: "192.0.2.9")
    assert address_towards("192.0.2.1:9", "0.0.0.0:5555", None) == "192.0.2.9:5555"


def test_a_peer_that_cannot_be_resolved_leaves_the_address_open() -> None:
    assert address_towards("nowhere.invalid:1", "0.0.0.0:5555", None) == ""


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("192.0.2.7:5555", True),
        ("phone.example:0", True),
        ("[::1]:5555", True),
        ("::1:5555", False),
        ("192.0.2.7", False),
        (":5555", False),
        ("here:70000", False),
        ("here:", False),
    ],
)
def test_host_and_port(text: str, right: bool) -> None:
    assert has_port(text) == right


def test_known_addresses_are_those_of_the_placement_and_those_given(tmp_path: Path) -> None:
    role = load_role(language_model("null").write(tmp_path / "build") / "devices" / "b")
    given = {"a": "127.0.0.1:1", "c": "127.0.0.1:3"}
    assert known_addresses(role, given) == given
    with pytest.raises(RunError, match="the address of c is not known"):
        known_addresses(role, {"a": "127.0.0.1:1"})
    with pytest.raises(RunError, match="the build has no device 'x'"):
        known_addresses(role, {**given, "x": "127.0.0.1:4"})


@pytest.fixture
def listeners() -> Iterator[list[Transport]]:
    made = [Transport(None, 1 << 16, 5.0) for _ in range(2)]
    yield made
    for transport in made:
        transport.close()


@pytest.fixture
def dialler() -> Iterator[Transport]:
    made = Transport(None, 1 << 16, 5.0)
    yield made
    made.close()


def polled(transport: Transport, wanted: Event) -> list[Event]:
    """All events up to the one that is wanted."""
    found: list[Event] = []
    end = time.monotonic() + 10.0
    while wanted not in found:
        assert time.monotonic() < end, found
        found += transport.poll(0.1)
    return found


def test_a_device_that_moves_is_connected_to_where_it_is_now(
    listeners: list[Transport], dialler: Transport
) -> None:
    first, second = (transport.listen("127.0.0.1:0") for transport in listeners)
    dialler.connect("b", first)
    polled(dialler, Connected("b"))
    dialler.connect("b", first)
    assert dialler.poll(0.05) == [], "a second call with the same address does nothing"
    dialler.connect("b", second)
    assert dialler.poll(None)[0] == Disconnected("b"), "at once, without waiting for anything"
    assert dialler.address_of("b") == second
    assert not dialler.send("b", Ping()), "nothing goes to the old connection"
    polled(dialler, Connected("b"))
    assert dialler.send("b", Ping(token=7))
    end = time.monotonic() + 10.0
    came: list[Event] = []
    while not came and time.monotonic() < end:
        came = [event for event in listeners[1].poll(0.1) if isinstance(event, Received)]
    assert isinstance(came[0], Received) and came[0].message == Ping(token=7)


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 address of its own."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_ipv6_stands_in_brackets(listeners: list[Transport], dialler: Transport) -> None:
    address = listeners[0].listen("[::1]:0")
    assert address.startswith("[::1]:")
    dialler.connect("b", address)
    polled(dialler, Connected("b"))
    assert dialler.send("b", Ping(token=7))
    assert listeners[1].listen("127.0.0.1:0").startswith("127.0.0.1:"), "and others stay what they are"


def test_a_connection_that_never_stood_is_left_without_a_word(
    listeners: list[Transport], dialler: Transport
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    dialler.connect("b", f"127.0.0.1:{port}")
    dialler.connect("b", listeners[0].listen("127.0.0.1:0"))
    assert Disconnected("b") not in polled(dialler, Connected("b"))


def test_a_peer_that_returns_after_a_while_is_found_soon(dialler: Transport) -> None:
    """Attempts do not become rare: a ring stands still meanwhile. A busy machine may be late, but not every time."""
    took = []
    for name in ("b", "c", "d", "e"):
        took.append(found_after(dialler, name))
        if took[-1] < 0.8:
            return
    pytest.fail(f"{took} s instead of a quarter of a second, and the half of it by chance")


def found_after(dialler: Transport, name: str) -> float:
    """The seconds after which a peer is connected to that was not there for two."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    dialler.connect(name, address)
    dialler.poll(2.0)
    late = Transport(None, 1 << 16, 5.0)
    try:
        late.listen(address)
        began = time.monotonic()
        polled(dialler, Connected(name))
        return time.monotonic() - began
    finally:
        late.close()


def test_a_limit_of_frames_beyond_what_a_socket_takes() -> None:
    transport = Transport(None, 1 << 70, 5.0)
    try:
        assert transport.listen("127.0.0.1:0").startswith("127.0.0.1:")
    finally:
        transport.close()


@pytest.mark.parametrize("host", ["[::1]", "[::1%lo]"])
def test_a_device_is_reached_over_ipv6(host: str, listeners: list[Transport], dialler: Transport) -> None:
    if not _has_six():
        pytest.skip("this machine has no IPv6")
    address = listeners[0].listen(f"{host}:0")
    assert address.startswith("[::1")
    dialler.connect("b", f"{host}:{address.rpartition(':')[2]}")
    polled(dialler, Connected("b"))


def _has_six() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
