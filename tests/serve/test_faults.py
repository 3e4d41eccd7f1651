"""A bug in one request: that one ends with status 500 and a traceback in the output, and all else goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.serve.faulty import HEARD, READ, SENT
from tests.serve.server import Server, events, serving

pytestmark = pytest.mark.serve

TOKENS = 300


def test_a_bug_ends_its_request_alone(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    faults: list[dict[str, Any]] = [{"prompt": [SENT]}, {"prompt": [HEARD]}, {"logprobs": READ}]
    with serving(build, program="tests.serve.faulty") as server:
        expected = _ask(server)
        answers: list[Any] = []
        others = [threading.Thread(target=lambda: answers.append(_ask(server))) for _ in "12"]
        for thread in others:
            thread.start()
        for fault in faults:
            status, answer = server.complete(max_tokens=9, **fault)
            assert (status, answer["error"]["code"]) == (500, "internal_error"), fault
            *_, last = events(server.complete(max_tokens=9, stream=True, **fault)[1])
            assert last["error"]["code"] == "internal_error", fault
        for thread in others:
            thread.join(60)
        assert answers == [expected] * 2
        assert server.get("/health") == (200, {"status": "ok"})
        assert server.metric("partc_requests_in_flight") == 0
        assert server.metric('partc_requests_total{outcome="failed"}') == 2 * len(faults)
    told = capfd.readouterr().err
    assert all(f"Bug: {what}" in told for what in ("sent", "heard", "read"))


def _ask(server: Server) -> Any:
    """A long answer without what is its own alone."""
    status, answer = server.complete(seed=5, max_tokens=TOKENS)
    assert status == 200, answer
    return answer["choices"], answer["usage"]["completion_tokens"]
