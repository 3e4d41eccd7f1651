"""The source of a ring dies while it generates: requests begin again with what they had, once."""

from __future__ import annotations

import os
import signal
import threading
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.serve.server import Server, await_state, serving

pytestmark = pytest.mark.serve

TOKENS = 300
KNOWN = 40
"""Tokens that have come when the source dies, at least; some are no text."""


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
    assert (answer["usage"], answer["choices"][0]["finish_reason"]) == (expected["usage"], "length")
    # What it had is kept. The rest differs: the numbers of this engine depend on how steps were cut.
    assert _common(answer, expected) >= KNOWN // 2
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
