from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.living.forwarder import Forwarder


@pytest.fixture
def pair() -> Iterator[tuple[Forwarder, socket.socket, socket.socket]]:
    """A forwarder, and the two ends of a connection through it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        with Forwarder(f"{host}:{port}") as forwarder:
            near_host, near_port = forwarder.address.split(":")
            with closing(socket.create_connection((near_host, int(near_port)), 5)) as near:
                far, _ = server.accept()
                with closing(far):
                    for end in (near, far):
                        end.settimeout(5)
                    yield forwarder, near, far


Pair = tuple[Forwarder, socket.socket, socket.socket]


def arrives(sender: socket.socket, receiver: socket.socket, within_s: float) -> bool:
    sender.sendall(b"x")
    receiver.settimeout(within_s)
    try:
        return receiver.recv(1) == b"x"
    except TimeoutError:
        return False


def test_bytes_pass_both_ways(pair: Pair) -> None:
    _, near, far = pair
    assert arrives(near, far, 5) and arrives(far, near, 5)


@pytest.mark.parametrize("there", [True, False], ids=["there", "back"])
def test_a_cut_direction_holds_bytes_until_it_is_mended(pair: Pair, there: bool) -> None:
    forwarder, near, far = pair
    forwarder.cut(there=there, back=not there)
    time.sleep(0.05)
    assert arrives(near, far, 0.3) != there
    assert arrives(far, near, 0.3) == there
    forwarder.mend()
    receiver = far if there else near
    receiver.settimeout(5)
    assert receiver.recv(1) == b"x", "held, not lost"


def test_a_slow_link(pair: Pair) -> None:
    forwarder, near, far = pair
    forwarder.slow(100_000)
    time.sleep(0.05)
    began, missing = time.monotonic(), 40_000
    near.sendall(b"x" * missing)
    while missing:
        missing -= len(far.recv(65536))
    assert 0.3 < time.monotonic() - began < 20.0


def test_a_connection_that_is_hung_up(pair: Pair) -> None:
    forwarder, near, far = pair
    forwarder.hang_up()
    assert near.recv(1) == far.recv(1) == b""


def test_a_target_that_is_not_there_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = server.getsockname()
    with Forwarder(f"{target[0]}:{target[1]}") as forwarder:
        host, port = forwarder.address.split(":")
        with closing(socket.create_connection((host, int(port)), 5)) as near:
            near.settimeout(5)
            assert near.recv(1) == b""
