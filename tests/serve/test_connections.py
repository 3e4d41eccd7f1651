"""Connections that ask nothing keep nobody out, whatever number of files the system lets the server open."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.serve.server import MODEL, Server, serving

pytestmark = [pytest.mark.serve, pytest.mark.in_turns(2)]

SILENT = 1200
SOON_S = 20.0
"""Time of an honest request on a machine that does much else."""


@contextlib.contextmanager
def files(soft: int, hard: int | None = None) -> Iterator[None]:
    """Children may open so many files, and lift that to `hard`."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wrapped = subprocess.Popen

    def limited(*arguments: object, **options: object) -> object:
        limits = soft, before[1] if hard is None else hard
        return wrapped(
            *arguments, **options, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        )  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.serve.server.subprocess.Popen", limited)
        yield


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may have all connections open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= before[1] < SILENT + 200:
        pytest.skip(f"the system lets no process open {SILENT + 200} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], SILENT + 200), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _silent(server: Server, number: int, stack: ExitStack) -> list[socket.socket]:
    """Connections that say nothing, and some that begin a head and never end it."""
    place = urlsplit(server.url)
    made = []
    for index in range(number):
        one = stack.enter_context(
            socket.create_connection((str(place.hostname), place.port or 0), timeout=30)
        )
        if index % 7 == 0:
            one.sendall(b"POST /v1/completions HTTP/1.1\r\nX-Slow: ")
        made.append(one)
    return made


@pytest.mark.parametrize(("soft", "hard"), [(256, None), (256, 256)], ids=["soft", "hard"])
def test_silent_connections_keep_nobody_out(
    build: Path, many_files: None, capfd: pytest.CaptureFixture[str], soft: int, hard: int | None
) -> None:
    with files(soft, hard), serving(build) as server, ExitStack() as stack:
        assert server.complete(max_tokens=2)[0] == 200
        _silent(server, SILENT, stack)
        for _ in range(3):
            begun = time.monotonic()
            assert server.complete(max_tokens=2)[0] == 200
            assert time.monotonic() - begun < SOON_S
        descriptors = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        assert descriptors < (1024 + 200 if hard is None else hard)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.in_turns(4)
def test_a_connection_has_a_short_time_to_begin(server: Server) -> None:
    from partc.serve.connections import FIRST_BYTE_S, HEAD_S

    place = urlsplit(server.url)
    body = json.dumps({"model": MODEL, "prompt": "abc", "max_tokens": 1}).encode()
    whole = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    limits = {b"": FIRST_BYTE_S, b"GET / HT": HEAD_S, whole: FIRST_BYTE_S, whole + b"GET /": HEAD_S}
    with ExitStack() as stack:
        open_ = {}
        for sent in limits:
            one = stack.enter_context(socket.create_connection((str(place.hostname), place.port or 0)))
            one.sendall(sent)
            open_[one] = sent
        begun = time.monotonic()
        closed: dict[bytes, float] = {}
        while len(closed) < len(limits):
            for one, sent in open_.items():
                one.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if not one.recv(65536):
                        closed.setdefault(sent, time.monotonic() - begun)
            assert time.monotonic() - begun < 60
    for sent, limit in limits.items():
        assert closed[sent] > limit / 2, sent


@pytest.mark.in_turns(4)
def test_a_handshake_that_does_not_come_is_given_up(build: Path, tmp_path: Path, many_files: None) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    options = ("--tls-cert", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "key"))
    with files(256, 256), serving(build, *options, ready=False) as server, ExitStack() as stack:
        silent = _silent(server, 300, stack)
        context = ssl.create_default_context(cafile=str(tmp_path / "cert"))
        place = urlsplit(server.url)
        begun = time.monotonic()
        with (
            socket.create_connection((str(place.hostname), place.port or 0), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as one,
        ):
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(65536).startswith(b"HTTP/1.1 ")
        assert time.monotonic() - begun < SOON_S
        silent[-1].settimeout(30)
        assert silent[-1].recv(1) == b"", "it has no more than its time"


@pytest.mark.in_turns(4)
def test_streams_that_nobody_reads_end_without_a_traceback(
    build: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM comes while they are under way; the server ends soon all the same."""
    place, body = (
        None,
        json.dumps({"model": MODEL, "prompt": "abc", "max_tokens": 890, "stream": True}).encode(),
    )
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack, serving(build) as server:
        place = urlsplit(server.url)
        for _ in range(30):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            one.connect(("127.0.0.1", place.port or 0))
            one.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        while server.metric("partc_requests_in_flight") < 20:
            time.sleep(0.02)
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert "Cancel" not in told


@pytest.mark.slow
def test_a_stream_that_nobody_reads_is_cancelled(server: Server) -> None:
    from partc.serve.connections import UNREAD_S

    body = json.dumps({"model": MODEL, "prompt": "abc", "n": 4, "max_tokens": 890, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    before = server.metric('partc_requests_total{outcome="cancelled"}')
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        one.connect(("127.0.0.1", urlsplit(server.url).port or 0))
        one.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        end = time.monotonic() + 4 * UNREAD_S
        while server.metric('partc_requests_total{outcome="cancelled"}') == before:
            assert time.monotonic() < end
            time.sleep(0.2)
    assert server.metric("partc_requests_in_flight") == 0


@pytest.mark.in_turns(4)
def test_a_stream_tells_that_the_server_ends(build: Path) -> None:
    with serving(build, "--queue", "100") as server:
        lines = server.lines(
            "/v1/completions",
            {"model": MODEL, "prompt": "abc", "n": 16, "max_tokens": 890, "stream": True},
        )
        first = next(lines)
        server.process.terminate()
        rest = [line for line in lines if line]
    assert first.startswith("data: ")
    assert rest[-1] == "data: [DONE]" or "the server ends" in rest[-1]
