"""A client's network has gaps, and its requests go on; real processes, and a link that is cut."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from partc.errors import RunError
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing
from partc.runtime.client.results import Tokens
from tests.living.forwarder import Forwarder
from tests.runtime.bundles import LENGTH, language_model
from tests.runtime.patched import slow_runner
from tests.runtime.runners import Runners

FLOOR_S = 1.0
STEP_S = 0.06
PROMPT = [1, 2]
COUNT = LENGTH - 2
ENOUGH_S = 30.0
"""What a test machine that does much else may take for anything that is done at once."""
_FOR_GOOD = float("inf")


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model("null", max_requests=1).write(tmp_path / "build")


@pytest.fixture
def ring(build: Path, tmp_path: Path, runners: Runners) -> Iterator[LocalRing]:
    env = slow_runner(tmp_path / "slow", STEP_S, "b")
    launch = runners.patched("b").launch
    with launch(build, insecure=True, floor_s=FLOOR_S, linger_s=10.0, env=env) as ring:
        yield ring


@contextmanager
def far_client(build: Path, ring: LocalRing, linger_s: float = 10.0) -> Iterator[tuple[Client, Forwarder]]:
    """A client, and the link to its source."""
    with (
        Forwarder(ring.source) as link,
        Client.connect(build, link.address, insecure=True, floor_s=FLOOR_S, linger_s=linger_s) as client,
    ):
        yield client, link


def expected(ring: LocalRing) -> list[int]:
    with ring.client() as client:
        return list(client.generate(PROMPT, COUNT, ignore_eos=True).tokens[0])


def told_and_result(client: Client, at_token_3: Callable[[], None]) -> tuple[list[int | None], list[int]]:
    """The tokens that the call-back is told of, and those of the result."""
    told: list[int | None] = []

    def listen(tokens: Tokens) -> None:
        assert tokens.step == len(told)
        told.extend(tokens.tokens)
        if tokens.step == 3:
            at_token_3()

    result = client.generate(PROMPT, COUNT, ignore_eos=True, on_token=listen)
    return told, list(result.tokens[0])


def gap(link: Forwarder, seconds: float, *, breaks: bool) -> None:
    """Nothing passes for so long, or for good; connections break at once, or only when somebody notices."""
    link.cut(there=True, back=True)
    if breaks:
        link.hang_up()
    if seconds < _FOR_GOOD:
        Timer(seconds, link.mend).start()


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("seconds", "breaks"),
    [(0.0, True), (0.5, True), (2.5, True), (0.5, False), (4.0, False)],
    ids=["break", "short", "until-it-has-ended", "silent", "silent-until-it-breaks"],
)
def test_a_request_survives_a_gap(build: Path, ring: LocalRing, seconds: float, breaks: bool) -> None:
    """It takes 1.3 s; a silent connection counts as broken after 1.5 s."""
    right = expected(ring)
    with far_client(build, ring) as (client, link):
        told, tokens = told_and_result(client, lambda: gap(link, seconds, breaks=breaks))
        assert told == tokens == right
        assert client.generate(PROMPT, 2, ignore_eos=True).tokens[0] == right[:2]


def test_a_request_that_was_lost_on_its_way_is_sent_again(build: Path, ring: LocalRing) -> None:
    right = expected(ring)
    with far_client(build, ring) as (client, link):
        link.cut(there=True, back=True)
        time.sleep(0.1)
        requests = [client.submit(PROMPT, max_new_tokens=3, ignore_eos=True) for _ in range(2)]
        link.hang_up()
        link.mend()
        assert [request.result().tokens[0] for request in requests] == [right[:3]] * 2


def test_a_request_that_is_cancelled_in_a_gap(build: Path, ring: LocalRing) -> None:
    with far_client(build, ring) as (client, link):
        request = client.submit(PROMPT, max_new_tokens=COUNT, ignore_eos=True)
        client.wait([request], 0.3)
        gap(link, 0.3, breaks=True)
        client.wait([request], 0.1)
        request.cancel()
        with pytest.raises(RunError, match="the request was cancelled"):
            request.result()


def test_a_placement_whose_outcome_is_not_heard(build: Path, ring: LocalRing) -> None:
    with far_client(build, ring) as (client, link):
        link.cut(there=True, back=True)
        placing = client.place(client.role.placement)
        link.hang_up()
        with pytest.raises(RunError, match="closed its connection before it told the outcome") as caught:
            placing.result()
        assert "partc watch" in str(caught.value.hint)


def test_a_source_that_was_started_anew(build: Path, ring: LocalRing) -> None:
    with far_client(build, ring) as (client, _):
        source = ring.pids["a"]
        with pytest.raises(RunError, match="a was started anew, and does not know this request") as caught:
            told_and_result(client, lambda: os.kill(source, signal.SIGKILL))
        assert (caught.value.cause, caught.value.where) == ("lost-peer", "a")
        assert "repeat the request" in str(caught.value.hint)
        assert client.generate(PROMPT, 2, ignore_eos=True).tokens


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("breaks", [True, False])
def test_a_source_that_does_not_come_back(build: Path, ring: LocalRing, breaks: bool) -> None:
    with far_client(build, ring, linger_s=1.2) as (client, link):
        began = time.monotonic()
        with pytest.raises(RunError, match=r"(out of reach|no sign of life) for 1\.2 s"):
            told_and_result(client, lambda: gap(link, _FOR_GOOD, breaks=breaks))
        assert 1.2 <= time.monotonic() - began < ENOUGH_S


def test_a_closed_client_leaves_nothing_behind(build: Path, tmp_path: Path, runners: Runners) -> None:
    """There is one slot, and the source would wait 10 s for its client."""
    env = slow_runner(tmp_path / "slow", 8 * STEP_S, "b")
    launch = runners.patched("b").launch
    with launch(build, insecure=True, floor_s=4.0, linger_s=10.0, env=env) as ring:
        with far_client(build, ring) as (client, _):
            client.wait([client.submit(PROMPT, max_new_tokens=COUNT, ignore_eos=True)], 0.2)
        with ring.client() as client:
            began = time.monotonic()
            client.generate(PROMPT, 1)
            assert time.monotonic() - began < COUNT * 8 * STEP_S / 2


def test_the_request_of_a_client_that_does_not_return_is_cancelled(
    build: Path, tmp_path: Path, runners: Runners
) -> None:
    env = slow_runner(tmp_path / "slow", 10 * STEP_S, "b")
    launch = runners.patched("b").launch
    with (
        launch(build, insecure=True, floor_s=4.0, linger_s=0.5, env=env) as ring,
        ring.client() as other,
        far_client(build, ring) as (client, link),
    ):
        client.wait([client.submit(PROMPT, max_new_tokens=COUNT, ignore_eos=True)], 1.0)
        link.cut(there=True, back=True)
        link.hang_up()
        began = time.monotonic()
        other.generate(PROMPT, 1)
        assert 0.5 <= time.monotonic() - began < 10.0, "the whole of it takes 13 s"
