"""Several rings behind one endpoint: a request goes to one that has room, what one loses begins again at another."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from partc.errors import ConfigError
from partc.runtime.client.launch import launch_local
from partc.runtime.client.query import Query
from partc.runtime.core.liveness import LINGER_S
from partc.serve.job import Job
from tests.serve.server import MODEL, Server, await_state, serving

pytestmark = pytest.mark.serve

TOKENS = 300


@pytest.fixture(scope="module")
def other(build: Path) -> Path:
    """Another ring of the same model."""
    return Path(shutil.copytree(build, build.parent / "other"))


def test_a_request_goes_on_at_another_ring(build: Path, other: Path) -> None:
    with serving(build, str(other), ready=False) as server:
        assert {await_state(server.process, "ready")["ring"] for _ in "12"} == {"build", "other"}
        expected = _ask(server)
        before = server.metric("partc_generated_tokens_total")
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(_ask(server)))
        thread.start()
        while server.metric("partc_generated_tokens_total") < before + 40:
            pass
        for ring in (build, other):  # whichever has it
            os.kill(server.runner("a", ring), signal.SIGKILL)
            lost = await_state(server.process, "lost")
            assert lost["ring"] == ring.name
            if server.metric("partc_begun_again_total"):
                break
        thread.join(60)
        (answer,) = answers
        assert (answer["usage"], answer["choices"]) == (expected["usage"], expected["choices"])
        assert server.metric("partc_begun_again_total") == 1


@pytest.mark.in_turns(4)
def test_another_ring_takes_over_at_once(build: Path, other: Path) -> None:
    """Nobody waits for a source on the network that may come back, since there is another one."""
    answers: list[Any] = []
    with (
        launch_local(build, restart=False) as first,
        launch_local(other, restart=False) as second,
        serving(
            build, str(other), "--connect", first.source, "--connect", second.source, ready=False
        ) as server,
    ):
        for _ in "12":
            await_state(server.process, "ready")
        threads = [threading.Thread(target=lambda: answers.append(_ask(server))) for _ in "12"]
        for thread in threads:
            thread.start()
        while server.metric("partc_generated_tokens_total") < 40:
            pass
        os.kill(first.pids["a"], signal.SIGKILL)
        killed = time.monotonic()
        assert await_state(server.process, "lost")["ring"] == build.name
        for thread in threads:
            thread.join(60)
        assert time.monotonic() - killed < LINGER_S / 2
        assert len(answers) == 2
        assert server.metric("partc_begun_again_total") >= 1


def test_requests_at_once_are_spread_over_the_rings(build: Path, other: Path) -> None:
    with serving(build, str(other), ready=False) as server:
        for _ in "12":
            await_state(server.process, "ready")
        threads = [
            threading.Thread(target=_ask, args=(server,), kwargs={"prompt": text}) for text in ("abc", "def")
        ]
        for thread in threads:
            thread.start()
        busy: set[Path] = set()
        while any(thread.is_alive() for thread in threads) and len(busy) < 2:
            for ring in (build, other):
                if _processor_s(server.runner("b", ring)) > 0.02:
                    busy.add(ring)
            time.sleep(0.01)
        for thread in threads:
            thread.join(60)
        assert busy == {build, other}
        told = server.get("/metrics")[1]
        assert 'partc_ring_ready{ring="build"} 1' in told and 'partc_ring_ready{ring="other"} 1' in told


def test_rings_of_other_models_are_refused(build: Path, tmp_path: Path) -> None:
    from partc.format.role import source_role
    from partc.serve.server import RingSettings, Server, ServerSettings
    from tests.runtime.bundles import language_model

    shorter = language_model("null", max_sequence=64).write(tmp_path / "shorter")
    first, second = (
        RingSettings(path.name, path, source_role(path), _never, lambda ring: {}) for path in (build, shorter)
    )
    endpoint = Server(first, _settings(ServerSettings), lambda what, detail, ring: None)
    with pytest.raises(ConfigError, match="max_sequence is 64; the ring build has 900"):
        endpoint.open(second)


def test_a_prompt_that_a_ring_knows_counts_as_a_request_less() -> None:
    from partc.serve.ring import RingThread
    from partc.serve.rings import _Ring

    def job(*prompt: int, reuses: bool = True) -> Job:
        return Job(Query([prompt], 1, reuse=reuses), lambda token, likely: None, lambda outcome: None)

    ring = _Ring(RingThread.__new__(RingThread), most=4)
    ring.prompts.append([1, 2, 3, 4])
    ring.jobs.add(job(9))
    assert ring.load(job(7, 8)) == 1 / 4
    assert ring.load(job(1, 2, 3, 4)) == 0.0
    assert ring.load(job(1, 2, 5, 6)) == 0.5 / 4
    assert ring.load(job(1, 2, 3, 4, reuses=False)) == 1 / 4


def _ask(server: Server, prompt: str = "abc") -> Any:
    body = {"model": MODEL, "prompt": prompt, "seed": 5, "max_tokens": TOKENS}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    return answer


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _never() -> Any:
    raise AssertionError("no ring is opened")


def _settings(kind: Any) -> Any:
    from partc.serve.access import Limits

    return kind("127.0.0.1", 0, None, frozenset(), None, None, None, 1.0, Limits(1024, 1, 1.0))
