"""Sockets of the native runner beside Python's: messages both ways, keys, limits, breaks."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from partc.format.codec import encode
from partc.runtime.core.events import Connected, Disconnected, Received, Rejected
from partc.runtime.shell.keys import Keys, load_device_keys, make_keys
from partc.runtime.shell.transport import Transport
from tests.native.transports import HELLO, LIMIT, PATIENCE_S, Native, device, until
from tests.runtime.test_addresses import has_ipv6

pytestmark = pytest.mark.native


@pytest.fixture(params=["zmq", "zmtp"])
def kind(request: pytest.FixtureRequest) -> str:
    """The transport: over libzmq, or the one that speaks the protocol itself."""
    return str(request.param)


@pytest.fixture
def open_native(program_file: Path, kind: str) -> Iterator[Callable[[Path | None], Native]]:
    with ExitStack() as stack:

        def opened(bundle: Path | None) -> Native:
            native = Native(program_file, bundle, kind)
            stack.callback(native.end)
            return native

        yield opened


@pytest.fixture
def open_python() -> Iterator[Callable[[Keys | None], Transport]]:
    with ExitStack() as stack:

        def opened(keys: Keys | None) -> Transport:
            transport = Transport(keys, LIMIT, PATIENCE_S)
            stack.callback(transport.close)
            return transport

        yield opened


def gathered(native: Native, python: Transport, wanted: Callable[[list[Any], list[Any]], object]) -> Any:
    """Polls both until what has come is what is wanted; the events of the native one, and of Python's."""
    ours: list[Any] = []
    theirs: list[Any] = []

    def done() -> object:
        ours.extend(native.poll())
        theirs.extend(python.poll(0.02))
        return wanted(ours, theirs)

    until(done)
    return ours, theirs


@pytest.mark.parametrize("encrypted", [True, False])
def test_messages_travel_both_ways_from_python(
    build: Path, open_native: Any, open_python: Any, encrypted: bool
) -> None:
    native = open_native(device(build, "board") if encrypted else None)
    python = open_python(load_device_keys(device(build, "phone")) if encrypted else None)
    python.connect("board", native.listen())
    gathered(native, python, lambda ours, theirs: Connected("board") in theirs)
    frames = [b"", b"\0\1", bytes(range(256)) * 1000]
    assert python.send("board", HELLO, frames)
    ours, _ = gathered(native, python, lambda ours, theirs: ours)
    kind, route, user, header, received = ours[0]
    assert (kind, user) == ("received", "phone" if encrypted else "")
    assert (bytes.fromhex(header), [bytes.fromhex(frame) for frame in received]) == (encode(HELLO), frames)
    assert native.send(route, HELLO, frames, route=True)
    _, theirs = gathered(native, python, lambda ours, theirs: theirs)
    assert isinstance(theirs[0], Received)
    assert (theirs[0].origin, theirs[0].message, [bytes(frame) for frame in theirs[0].frames]) == (
        "board",
        HELLO,
        frames,
    )


def test_messages_travel_both_ways_to_python(build: Path, open_native: Any, open_python: Any) -> None:
    native, python = (
        open_native(device(build, "board")),
        open_python(load_device_keys(device(build, "phone"))),
    )
    assert not native.send("phone", HELLO), "there is no connection"
    native.ask(connect="phone", address=python.listen("127.0.0.1:0"))
    gathered(native, python, lambda ours, theirs: ["connected", "phone"] in ours)
    assert native.send("phone", HELLO, [b"x" * 100_000])
    _, theirs = gathered(native, python, lambda ours, theirs: theirs)
    assert isinstance(theirs[0], Received)
    assert (theirs[0].user, theirs[0].message, bytes(theirs[0].frames[0])) == ("board", HELLO, b"x" * 100_000)
    assert python.send(theirs[0].origin, HELLO)
    ours, _ = gathered(native, python, lambda ours, theirs: ours)
    assert ours[0][:2] == ["received", "phone"]


def test_keys_that_are_not_known_are_refused_both_ways(
    tmp_path: Path, build: Path, open_native: Any, open_python: Any
) -> None:
    make_keys(tmp_path, ["phone", "board"], "phone")
    native, stranger = (
        open_native(device(build, "board")),
        open_python(load_device_keys(device(tmp_path, "phone"))),
    )
    # The stranger knows whom he calls, and is not known there.
    known = load_device_keys(device(build, "phone")).peers
    visitor = open_python(Keys(load_device_keys(device(tmp_path, "phone")).own, known))
    address = native.listen()
    stranger.connect("board", address)
    visitor.connect("board", address)
    ours, theirs = gathered(native, visitor, lambda ours, theirs: Rejected("board") in theirs)
    assert not ours and Connected("board") not in theirs
    native.ask(connect="phone", address=stranger.listen("127.0.0.1:0"))
    ours, _ = gathered(native, stranger, lambda ours, theirs: ["rejected", "phone"] in ours)
    assert ["connected", "phone"] not in ours


def test_what_is_no_message_is_told_and_harms_nobody(build: Path, open_native: Any, open_python: Any) -> None:
    native, python = (
        open_native(device(build, "board")),
        open_python(load_device_keys(device(build, "phone"))),
    )
    python.connect("board", native.listen())
    gathered(native, python, lambda ours, theirs: Connected("board") in theirs)
    for header in (b"", b"\xc1", b"\x80", encode(HELLO)[:-1]):
        python.send_frames("board", [header])
        ours, _ = gathered(native, python, lambda ours, theirs: ours)
        assert ours[0][0] == "unreadable"
    python.send("board", HELLO)
    ours, _ = gathered(native, python, lambda ours, theirs: ours)
    assert ours[0][0] == "received"


def test_frames_beyond_the_limit_end_the_connection(build: Path, open_native: Any, open_python: Any) -> None:
    native, python = (
        open_native(device(build, "board")),
        open_python(load_device_keys(device(build, "phone"))),
    )
    python.connect("board", native.listen())
    gathered(native, python, lambda ours, theirs: Connected("board") in theirs)
    python.send("board", HELLO, [bytes(LIMIT)])
    ours, _ = gathered(native, python, lambda ours, theirs: ours)
    assert len(ours[0][4][0]) == 2 * LIMIT
    python.send("board", HELLO, [bytes(LIMIT + 100)])
    ours, _ = gathered(native, python, lambda ours, theirs: Disconnected("board") in theirs and ours)
    assert [event[0] for event in ours] == ["disconnected"]


def test_the_end_of_a_connection_is_told_behind_its_last_message(build: Path, open_native: Any) -> None:
    native, python = (
        open_native(device(build, "board")),
        Transport(load_device_keys(device(build, "phone")), LIMIT, PATIENCE_S),
    )
    python.connect("board", native.listen())
    gathered(native, python, lambda ours, theirs: Connected("board") in theirs)
    python.send("board", HELLO)
    python.close()
    events: list[Any] = []
    while len(events) < 2:
        events += until(native.poll)
    assert [event[0] for event in events] == ["received", "disconnected"]
    assert events[0][1] == events[1][1]


def test_a_device_that_is_killed_is_told_and_comes_back(
    program_file: Path, build: Path, open_python: Any, kind: str
) -> None:
    python = open_python(load_device_keys(device(build, "phone")))
    native = Native(program_file, device(build, "board"), kind)
    address = native.listen()
    python.connect("board", address)
    gathered(native, python, lambda ours, theirs: Connected("board") in theirs)
    native.kill()
    until(lambda: Disconnected("board") in python.poll(0.05))
    native = Native(program_file, device(build, "board"), kind)
    assert native.ask(listen=address)["address"] == address
    gathered(native, python, lambda ours, theirs: Connected("board") in theirs)
    native.end()


def test_silent_connections_keep_nobody_out(build: Path, open_native: Any, open_python: Any) -> None:
    native, python = (
        open_native(device(build, "board")),
        open_python(load_device_keys(device(build, "phone"))),
    )
    address = native.listen()
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection((host, int(port))))
            native.ask(poll=0)
        python.connect("board", address)
        gathered(native, python, lambda ours, theirs: Connected("board") in theirs)
        python.send("board", HELLO)
        gathered(native, python, lambda ours, theirs: any(event[0] == "received" for event in ours))


def test_without_keys_nothing_leaves_the_machine(open_native: Any) -> None:
    native = open_native(None)
    assert "nothing may leave this machine" in native.ask(listen="0.0.0.0:0")["error"]
    assert "nothing may leave this machine" in native.ask(connect="board", address="192.0.2.7:5555")["error"]
    assert "is not an address" in native.ask(connect="board", address="192.0.2.7")["error"]


def test_keys_that_others_may_read_are_refused(program_file: Path, build: Path, tmp_path: Path) -> None:
    shutil.copytree(device(build, "board"), tmp_path / "board")
    (tmp_path / "board/keys/secret.key").chmod(0o644)
    command = [str(program_file), str(tmp_path / "board"), str(LIMIT), str(PATIENCE_S)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 1
    assert "other users may read this secret key" in done.stderr


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_ipv6_stands_in_brackets(
    open_native: Callable[[Path | None], Native], open_python: Callable[[Keys | None], Transport]
) -> None:
    native, python = open_native(None), open_python(None)
    address = str(native.ask(listen="[::1]:0").get("address"))
    assert address.startswith("[::1]:")
    python.connect("phone", address)
    native.ask(connect="board", address=python.listen("[::1]:0"))
    gathered(
        native,
        python,
        lambda ours, theirs: ["connected", "board"] in ours and Connected("phone") in theirs,
    )
