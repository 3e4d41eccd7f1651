"""One request for text on its way: its jobs at the ring, its answers, and their stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from partc.errors import PartcError
from partc.format.message_parts import Likely, Sampling
from partc.runtime.client.query import Query
from partc.runtime.client.results import Result
from partc.runtime.client.stop_search import StopSearch
from partc.runtime.client.text import Tokenizer
from partc.serve.answer import Answer, Piece
from partc.serve.errors import ApiError, api_error
from partc.serve.job import Job
from partc.serve.metrics import Metrics
from partc.serve.replies import DONE, KEEP_ALIVE, Json, Shape, event
from partc.serve.rings import Rings

KEEP_ALIVE_S = 10.0

Event = tuple[int, Sequence[Likely]] | Result | PartcError
"""A token with its probabilities, or the end of a job."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, checked."""

    shape: Shape
    prompts: Sequence[Sequence[int]]
    """Token ids."""
    choices: int
    """Answers to each prompt."""
    new_tokens: Sequence[int]
    """Tokens for each prompt, at most."""
    sampling: Sampling
    """That of the first answer; the seeds of the others follow."""
    stops: tuple[str, ...]
    ends: frozenset[int]
    """Tokens that end an answer and are no text."""
    wants_usage: bool
    alternatives: int | None = None
    """Likely tokens beside each, with the probabilities of all; None: none."""
    start_tokens: Sequence[int] = ()
    """What answers begin behind; empty: their prompts."""
    reuses: bool = True
    """Whether rows of earlier requests may be used."""
    drafts: bool = True
    """Whether tokens may be guessed."""
    expected: Sequence[int] = ()
    """Tokens that the answers may look like."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))


@dataclass(slots=True)
class Generation:
    """The answers to one request. Used in the event loop alone."""

    asked: Asked
    rings: Rings
    tokenizer: Tokenizer
    metrics: Metrics
    answers: list[Answer] = field(default_factory=list)
    _jobs: list[Job] = field(default_factory=list)
    _events: asyncio.Queue[tuple[int, Event]] = field(default_factory=asyncio.Queue)
    _begun: float = 0.0
    _latest: dict[int, float] = field(default_factory=dict)
    """Choice → when its last token came."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The jobs are at the ring within the block; what has not ended when it is left is cancelled."""
        self._begun = time.monotonic()
        for index in range(len(self.asked.prompts) * self.asked.choices):
            self._jobs.append(self._job(index))
        for job in self._jobs:
            self.rings.submit(job)
        self.metrics.in_flight += len(self._jobs)
        self.metrics.prompt_tokens += self.asked.prompt_tokens
        try:
            yield
        finally:
            self.metrics.in_flight -= len(self._jobs)
            for job, answer in zip(self._jobs, self.answers, strict=True):
                if answer.finish is None:
                    self.rings.cancel(job)

    async def pieces(self) -> AsyncIterator[tuple[int, Piece] | None]:
        """(choice, text) as it comes, then an empty one with the end of a choice; None when nothing has come for long.

        Raises:
            ApiError: a job has failed.
        """
        left = len(self._jobs)
        while left:
            try:
                # Not `wait_for`, which forgets a cancellation that comes together with a result (Python 3.11).
                async with asyncio.timeout(KEEP_ALIVE_S):
                    index, what = await self._events.get()
            except TimeoutError:
                yield None
                continue
            answer = self.answers[index]
            if answer.finish is not None:
                continue  # it came while the cancellation was on its way
            piece = self._take(index, answer, what)
            told = answer.told()
            if piece or told:
                yield index, Piece(piece, told)
            if answer.finish is not None:
                left -= 1
                yield index, Piece("", [])

    async def whole(self) -> Json:
        """The answer in one piece; raises as `pieces`."""
        async for _ in self.pieces():
            pass
        return self.asked.shape.whole(self.answers, self.asked.prompt_tokens)

    async def lines(self) -> AsyncIterator[str]:
        """The answer as server-sent events; raises as `pieces`."""
        shape = self.asked.shape
        for index in range(len(self._jobs)):
            if (first := shape.first(index)) is not None:
                yield self._event(first)
        async for item in self.pieces():
            if item is None:
                yield KEEP_ALIVE
                continue
            index, piece = item
            finish = self.answers[index].finish
            if piece.text or piece.told:
                yield self._event(shape.piece(index, piece))
            elif finish is not None:
                yield self._event(shape.last(index, finish))
        if self.asked.wants_usage:
            yield event(shape.usage(self.asked.prompt_tokens, self.answers))
        yield DONE

    def _event(self, chunk: Json) -> str:
        """A chunk; where usage is wanted, each but the last says that it has none yet."""
        return event({**chunk, "usage": None} if self.asked.wants_usage else chunk)

    def _take(self, index: int, answer: Answer, what: Event) -> str:
        if isinstance(what, PartcError):
            raise api_error(what)
        if isinstance(what, Result):
            answer.reused = what.reused
            if self.asked.expected:
                answer.guessed = what.accepted, what.drafted - what.accepted
            self.metrics.drafted += what.drafted
            self.metrics.accepted += what.accepted
            return answer.end("stop" if what.finish[0] == "stop" else "length")
        self._count(index)
        piece = answer.push(*what)
        if answer.finish is not None:  # by a stop text, which the ring knows nothing of
            self.rings.cancel(self._jobs[index])
        return piece

    def _count(self, index: int) -> None:
        now = time.monotonic()
        self.metrics.generated_tokens += 1
        if index in self._latest:
            self.metrics.between_tokens.add(now - self._latest[index])
        else:
            self.metrics.first_token.add(now - self._begun)
        self._latest[index] = now

    def _job(self, index: int) -> Job:
        asked = self.asked
        row, choice = divmod(index, asked.choices)
        prompt, given = asked.prompts[row], asked.sampling
        stream, search = self.tokenizer.stream(asked.start_tokens or prompt), StopSearch(asked.stops)
        self.answers.append(Answer(stream, search, asked.ends, asked.alternatives))
        sampling = replace(given, seed=(given.seed + choice) % 2**64)
        put = self._events.put_nowait
        query = Query(
            [prompt],
            asked.new_tokens[row],
            sampling,
            sorted(asked.ends),
            reuse=asked.reuses,
            drafts=asked.drafts,
            expected=asked.expected,
        )
        return Job(
            query=query,
            on_token=lambda token, likely: put((index, (token, likely))),
            on_end=lambda outcome: put((index, outcome)),
        )


def too_slow(seconds: float) -> ApiError:
    """About a request whose time is over."""
    message = f"the answer took longer than {seconds:g} s (--timeout)"
    return ApiError(message, status=504, kind="server_error", code="timeout")
