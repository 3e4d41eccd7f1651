"""The source of a ring dies while it generates: requests begin again with what they had, once."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from partc.runtime.client.keeper import MOST_DEATHS
from tests.serve.server import Server, await_state, serving

pytestmark = pytest.mark.serve

TOKENS = 300
KNOWN = 40
"""Tokens that have come when the source dies, at least; some are no text."""


@pytest.mark.in_turns(2)
def test_a_request_outlives_its_source(build: Path) -> None:
    with serving(build) as server:
        expected, other = _ask(server, 5), _ask(server, 6)
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(_ask(server, 5)))
        before = server.metric("partc_generated_tokens_total")
        thread.start()
        while server.metric("partc_generated_tokens_total") < before + KNOWN:
            pass
        os.kill(server.runner("a"), signal.SIGKILL)
        await_state(server.process, "lost")
        thread.join(60)
        assert server.metric("partc_begun_again_total") == 1
        assert server.get("/health") == (200, {"status": "ok"})
    (answer,) = answers
    assert answer["usage"] == expected["usage"]
    # The numbers of this engine depend on how steps were cut: the known tokens have been steps of their own again.
    assert answer["choices"] == expected["choices"]
    assert _common(answer, other) < KNOWN // 2


def test_the_server_says_why_it_cannot_begin(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    part = next((build / "devices" / "c").glob("part_*"))
    text = part.read_bytes()
    part.write_bytes(b"damaged")
    try:
        with serving(build, ready=False) as server:
            assert await_state(server.process, "ended")["reason"]
            assert server.process.wait(30) == 1
    finally:
        part.write_bytes(text)
    assert "error: the runner of c ended" in capfd.readouterr().err


def _common(one: Any, other: Any) -> int:
    """Characters with which both begin."""
    texts = (answer["choices"][0]["text"] for answer in (one, other))
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))


def _ask(server: Server, seed: int) -> Any:
    status, answer = server.complete(seed=seed, max_tokens=TOKENS)
    assert status == 200, answer
    return answer


def test_a_ring_that_is_given_up_is_opened_anew(build: Path) -> None:
    """A runner that dies too often is not started again; the server begins again with all of them."""
    with serving(build) as server:
        expected, answers = _ask(server, 5), []
        for _ in range(MOST_DEATHS):
            before = _killed(server, "b")
            end = time.monotonic() + 30
            while _runner(server, "b") in (None, before) and time.monotonic() < end:
                time.sleep(0.02)
        await_state(server.process, "lost")
        thread = threading.Thread(target=lambda: answers.append(_ask(server, 5)))
        thread.start()
        await_state(server.process, "ready")
        thread.join(60)
        assert server.get("/health") == (200, {"status": "ok"})
        assert answers[0]["choices"] == expected["choices"]


def _killed(server: Server, device: str) -> int:
    pid = _runner(server, device)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def _runner(server: Server, device: str) -> int | None:
    try:
        return server.runner(device)
    except (StopIteration, OSError):
        return None
