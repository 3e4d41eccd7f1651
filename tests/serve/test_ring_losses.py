"""What the thread of a ring does with requests whose ring is lost or removed, by a client that is a script."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from partc.errors import PartcError, RunError
from partc.runtime.client.query import Query
from partc.runtime.client.results import Result, Tokens
from partc.serve.job import Job
from partc.serve.ring import Opened, RingThread, State

pytestmark = pytest.mark.serve
LOST = RunError("the source closed its connection", cause="lost-peer")


class _Request:
    """A request that never ends by itself."""

    outcome: Result | PartcError | None = None
    done = False

    def cancel(self) -> None:
        """Nobody listens."""


class _Client:
    """A connection: each request gets these tokens; then the connection is lost, or nothing more comes."""

    def __init__(self, tokens: Sequence[int], *, is_lost: bool) -> None:
        self.tokens, self.is_lost = tokens, is_lost
        self.queries: list[Query] = []
        self._new: list[Callable[[Tokens], None]] = []

    def wake_on(self, woken: object) -> None:
        """It looks all the time."""

    def begin(self, query: Query, on_token: Callable[[Tokens], None]) -> _Request:
        """Note a request."""
        self.queries.append(query)
        self._new.append(on_token)
        return _Request()

    def listen(self, patience_s: float) -> None:
        """Bring the tokens."""
        time.sleep(0.001)
        for on_token in self._new:
            for step, token in enumerate(self.tokens):
                on_token(Tokens(step, (token,), ()))
            if self.is_lost:
                self._new = []
                raise LOST
        self._new = []

    def close(self) -> None:
        """Nothing is open."""


class _Owner:
    """Everything that a ring tells; calls come at once."""

    def __init__(self) -> None:
        self.ended: list[Result | PartcError] = []
        self.waits: list[Job] = []
        self.states: list[State] = []
        self.changed = threading.Event()

    def call_soon_threadsafe(self, function: Callable[..., None], *values: object) -> None:
        function(*values)
        self.changed.set()

    def ring_is(self, ring: RingThread, state: State, error: PartcError | None) -> None:
        self.states.append(state)

    def job_ended(self, job: Job, outcome: Result | PartcError) -> None:
        self.ended.append(outcome)

    def job_waits(self, ring: RingThread, job: Job, error: PartcError) -> None:
        self.waits.append(job)


@contextmanager
def ring_of(*clients: _Client) -> Iterator[tuple[RingThread, _Owner]]:
    """A ring to which each connection is the next of these; after the last there is none."""
    left, owner = list(clients), _Owner()

    def connect() -> Any:
        if not left:
            raise LOST
        return left.pop(0)

    @contextmanager
    def opener() -> Iterator[Opened]:
        yield Opened(connect)

    ring = RingThread("ring", opener, cast(Any, owner), owner)
    ring.start()
    try:
        yield ring, owner
    finally:
        ring.close()


def job(most: int = 4, **changes: Any) -> Job:
    query = Query([[5, 6]], most, stop=(3,))
    return Job(query, lambda token, likely: None, lambda outcome: None, **changes)


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize(("tokens", "finish"), [((7, 8, 9, 4), "length"), ((7, 3), "stop")])
def test_an_answer_whose_last_token_has_come_is_complete(tokens: Sequence[int], finish: str) -> None:
    """Only its end was still to come: neither does it fail, nor does it go on behind its end."""
    with ring_of(_Client(tokens, is_lost=True)) as (ring, owner):
        ring.submit(job())
        until(lambda: owner.ended or owner.waits)
        (result,) = owner.ended
    assert isinstance(result, Result)
    assert (result.tokens, result.finish) == ([list(tokens)], [finish])
    assert not owner.waits


def test_an_answer_begins_again_with_what_it_had_once() -> None:
    first, second = _Client([7, 8], is_lost=True), _Client([9], is_lost=True)
    with ring_of(first, second) as (ring, owner):
        asked = job()
        ring.submit(asked)
        until(lambda: owner.waits)
        ring.submit(asked)
        until(lambda: owner.ended)
    (began,), (again,) = first.queries, second.queries
    assert (again.prompts, again.known) == ([[5, 6]], ((7, 8),)), "what is known is no part of the prompt"
    assert replace(again, known=()) == began == asked.query
    assert owner.ended == [LOST]
    assert asked.tokens == [7, 8, 9]


def test_a_ring_that_is_removed_gives_back_what_has_begun_again_before() -> None:
    """Its removal is no loss."""
    with ring_of(_Client([7], is_lost=False)) as (ring, owner):
        asked = job(tokens=[9], lives=1)
        ring.submit(asked)
        until(lambda: len(asked.tokens) == 2)
        ring.close()
        assert (owner.waits, owner.ended, asked.lives) == ([asked], [], 1)
