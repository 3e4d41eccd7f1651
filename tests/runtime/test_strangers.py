"""Connections of strangers: they prove no key, and keep nobody out who has one."""

from __future__ import annotations

import os
import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import zmq

from partc.runtime.client.launch import LocalRing
from partc.runtime.core.events import Connected
from partc.runtime.shell.keys import KeyPair, Keys, load_client_keys
from partc.runtime.shell.transport import Transport
from tests.native.compiled import counts_memory
from tests.runtime.bundles import language_model
from tests.runtime.null_tokens import null_tokens
from tests.runtime.runners import Runners

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"
"""ZMTP 3.0, up to the mechanism."""
NOISE = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
    "random": random.Random(1).randbytes(4096),
    "zeros": bytes(4096),
    "half a greeting": GREETING[:10],
    "no encryption": GREETING + b"NULL".ljust(20, b"\0") + bytes(32) + b"\x04\x05READY",
    "another mechanism": GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32),
    "half a hello": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x04\xc8\x05HELLO",
    "a false hello": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x04\xc8\x05HELLO" + bytes(194),
    "a huge command": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x06" + b"\x7f" * 8 + bytes(9999),
    "a message first": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x00\x05hello",
    "a false initiate": GREETING
    + b"CURVE".ljust(20, b"\0")
    + bytes(32)
    + b"\x04\xff\x08INITIATE"
    + bytes(246),
}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model("null").write(tmp_path_factory.mktemp("strangers") / "build")


@pytest.fixture(scope="module")
def files() -> Iterator[None]:
    """As many open files as most systems allow at first; this process may have more as soon as runners are started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def launched(build: Path, runners: Runners, files: None) -> Iterator[LocalRing]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with runners.launch(build, restart=False) as ring:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        yield ring


def serves(ring: LocalRing) -> bool:
    with ring.client() as client:
        return client.generate([1], 3, ignore_eos=True).tokens == [null_tokens((1,), 3)]


@pytest.fixture
def ring(launched: LocalRing) -> Iterator[LocalRing]:
    """The ring, which serves a new client whatever a test did."""
    yield launched
    assert serves(launched)


@pytest.fixture
def strangers(ring: LocalRing) -> Iterator[Strangers]:
    with ExitStack() as stack:
        yield Strangers(ring.addresses["a"], stack)


class Strangers:
    """Connections to an address."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        host, _, port = address.rpartition(":")
        self._place, self._stack = (host, int(port)), stack

    def connect(self) -> socket.socket:
        return self._stack.enter_context(socket.create_connection(self._place, timeout=10))


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_an_unknown_key_never_gets_through(build: Path, ring: LocalRing) -> None:
    """Not even a message that would be well-formed."""
    public, secret = zmq.curve_keypair()
    known = load_client_keys(build).peers
    transport = Transport(Keys(KeyPair(public.decode(), secret.decode()), known), 1 << 16, 5.0)
    transport.connect("a", ring.addresses["a"])
    end = time.monotonic() + 0.5
    events = [event for _ in range(5) for event in transport.poll(0.1) if time.monotonic() < end]
    assert not any(isinstance(event, Connected) for event in events)
    transport.close()


@pytest.mark.in_turns(2)
def test_silent_connections_keep_no_client_out(ring: LocalRing, strangers: Strangers) -> None:
    for _ in range(1000):
        strangers.connect()
    time.sleep(0.5)
    assert serves(ring)
    pid = ring.pids["a"]
    assert open_files(pid) < 400
    before = processor_s(pid)
    time.sleep(1.0)
    assert processor_s(pid) - before < 0.5, "the loop that accepts is idle"


@pytest.mark.parametrize("noise", NOISE)
def test_noise_keeps_no_client_out(ring: LocalRing, strangers: Strangers, noise: str) -> None:
    for index in range(40):
        connection = strangers.connect()
        with suppress(OSError):
            connection.sendall(NOISE[noise])
        if index % 2:
            connection.close()
    assert serves(ring)


@counts_memory
def test_a_flood_of_connections(ring: LocalRing, strangers: Strangers) -> None:
    """Each says something and hangs up, while a client is served; nothing of them stays."""
    pid, rng = ring.pids["a"], random.Random(2)
    with ring.client() as client:
        client.generate([1], 3)
        files, size = open_files(pid), resident_bytes(pid)
        for _ in range(20):
            request = client.submit([1], max_new_tokens=3, ignore_eos=True)
            for _ in range(100):
                with suppress(OSError), strangers.connect() as connection:
                    connection.sendall(NOISE[rng.choice(list(NOISE))])
            assert request.result(10.0).tokens == [null_tokens((1,), 3)]
        end = time.monotonic() + 10.0
        while open_files(pid) > files + 5:
            assert time.monotonic() < end, "connections that were closed are kept"
            time.sleep(0.05)
        assert resident_bytes(pid) - size < 8e6
