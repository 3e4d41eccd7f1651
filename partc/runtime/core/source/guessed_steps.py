"""Steps that take guessed tokens, of all requests: which drafts go next, and what follows from a token.

Guesses go behind the token of a step, in the same one, or begin steps of their own. `Guessing` says how many, and when
one may leave, and the window of each request knows which are under way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from partc.runtime.core.actions import Begin
from partc.runtime.core.source.drafts import Draft
from partc.runtime.core.source.guessing import LEAST_CHANCE, Guessing
from partc.runtime.core.source.job import Call, Job
from partc.runtime.core.source.queue import Queue
from partc.runtime.core.source.sharing import Sharing, begin_of
from partc.runtime.core.source.window import Guess, Window
from partc.runtime.core.step import Step


@dataclass(slots=True)
class GuessedSteps:
    """The guesses of all requests."""

    queue: Queue
    sharing: Sharing
    guessing: Guessing = field(init=False)
    due: float | None = None
    """When `begin` must be called; None: there is nothing to guess before another token comes."""

    def __post_init__(self) -> None:
        role = self.sharing.role
        self.guessing = Guessing(role.model.step_tokens, len(role.ring))

    def begin(self, now: float) -> Iterator[Begin]:
        """Begin steps with guessed tokens, while the ring has room for them that nothing else wants."""
        if self.due is None or now < self.due:
            return
        self.due, guessing = None, self.guessing
        while guessing.goes and self._under_way < guessing.most and (found := self._best_draft()) is not None:
            job, draft, chance = found
            leaves, expected = max(now, self._follows_at), self._expected
            if not guessing.has_time(expected, leaves):
                return
            if now < leaves:
                self.due = leaves
                return
            call = job.guess(Guess(draft.token, now, chance, leads=True))
            guessing.guessed(now)
            yield self._with_further(job, call, now, expected - now)

    def begin_alone(self, job: Job, call: Call, now: float) -> Begin:
        """The begin of a step that no other request shares, with guesses behind its token where that is worth it."""
        found = self._with_further(job, call, now)
        if job.window is not None:
            job.window.awaited_tokens = found.step.rows
        return found

    def timed(self, step: Step) -> None:
        """A step is over, and tells how long the busiest device computed for it."""
        if step.phase == "decode" and step.busy_s is not None and not step.others:
            self.guessing.timed(step.rows, step.busy_s)

    def took(self, job: Job, step: Step, token: int, now: float) -> bool:
        """A new token is there; whether the step that takes it is under way."""
        window, guessing = job.window, self.guessing
        if window is None:
            return False
        guessing.scored(window.drafts.next(()), token, now, is_guessed=window.has(token))
        if step.phase == "decode":
            if window.is_sure:
                guessing.came(job.started, now, window.awaited_tokens)
            apart = window.apart(job.started, now)
            if not window.is_sure:
                guessing.apart(*apart)
        self.due = now
        return job.compare(token)

    # -- inner workings

    @property
    def _under_way(self) -> int:
        """Steps under way, of all requests."""
        return sum(job.under_way for job in self.queue.running)

    @property
    def _expected(self) -> float:
        """When the first token is expected that a true step may follow; infinity: none may."""
        jobs = self.queue.stepping
        waiting = [job for job in jobs if job.window is None or not job.window.counts_on]
        return min(
            [job.started + self.guessing.lap_of(job.awaited_tokens) for job in waiting], default=math.inf
        )

    @property
    def _follows_at(self) -> float:
        """When a guess may follow the last steps of all requests."""
        return max([job.last_started + self.guessing.pace_of(job.last_tokens) for job in self.queue.stepping])

    def _best_draft(self) -> tuple[Job, Draft, float] | None:
        """The draft that is right most often, and how often, of the requests whose steps are computed alone."""
        drafts = [
            (job, draft, job.window.chance * self.guessing.chance(draft))
            for job in self.queue.stepping
            if job.window is not None and job.may_guess and len(self.sharing.of(job.number)) <= 1
            if (draft := job.window.draft(job.stop)) is not None
        ]
        best = max(drafts, key=lambda found: found[2], default=None)
        return best if best is not None and best[2] >= LEAST_CHANCE else None

    def _with_further(self, job: Job, call: Call, now: float, time_s: float = math.inf) -> Begin:
        """The begin of a step of one token, with further ones that are guessed, as far as its stages have time."""
        window = job.window
        if window is None:
            return begin_of([call])
        further = self._further(job, window, now, time_s)
        if further:
            self.guessing.guessed(now)
        found = begin_of([call, *[job.guess(guess) for guess in further]])
        window.last_tokens = found.step.rows
        return found

    def _further(self, job: Job, window: Window, now: float, time_s: float) -> Sequence[Guess]:
        """The guesses that a step takes behind its token: as many as bring most tokens in a time, none beside others.

        Rows of other requests are worth more: each of them brings a token.
        """
        guessing = self.guessing
        most = min(job.may_guess, guessing.most_further)
        if most == 0 or len(self.queue.running) > 1 or not guessing.goes:
            return ()
        found: list[Guess] = []
        chance = before = window.chance
        while len(found) < most:
            draft = window.draft(job.stop, [guess.token for guess in found])
            if draft is None or (chance := chance * guessing.chance(draft)) < LEAST_CHANCE:
                break
            found.append(Guess(draft.token, now, chance, leads=False))
        return found[: guessing.tokens([guess.chance / before for guess in found], time_s) - 1]
