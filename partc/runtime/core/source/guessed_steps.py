"""Steps that begin with a guessed token, of all requests: which draft goes next, and what follows from a token.

`Guessing` says when one may leave, and the window of each request knows which are under way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from partc.runtime.core.actions import Begin
from partc.runtime.core.source.guessing import LEAST_CHANCE, Guessing
from partc.runtime.core.source.job import Job
from partc.runtime.core.source.queue import Queue
from partc.runtime.core.source.sharing import Sharing
from partc.runtime.core.source.window import Guess
from partc.runtime.core.step import Step


@dataclass(slots=True)
class GuessedSteps:
    """The guesses of all requests."""

    queue: Queue
    sharing: Sharing
    guessing: Guessing = field(default_factory=Guessing)
    due: float | None = None
    """When `begin` must be called; None: there is nothing to guess before another token comes."""

    def begin(self, now: float) -> Iterator[Begin]:
        """Begin steps with guessed tokens, while the ring has room for them that nothing else wants."""
        if self.due is None or now < self.due:
            return
        self.due, guessing = None, self.guessing
        while guessing.goes and self._under_way < guessing.most and (found := self._best_draft()) is not None:
            leaves = max(now, self._last_started + guessing.pace_s)
            if not guessing.has_time(self._true_since, leaves):
                return
            if now < leaves:
                self.due = leaves
                return
            job, guess = found
            guessing.guessed(now)
            yield Begin(*job.guess(guess.token, guess.chance, now))

    def took(self, job: Job, step: Step, token: int, now: float) -> bool:
        """A new token is there; whether the step that takes it is under way."""
        window, guessing = job.window, self.guessing
        if window is None:
            return False
        guessing.scored(window.drafts.next(()), token, now, is_guessed=window.has(token))
        if step.phase == "decode":
            guessing.came(job.started, now, step.busy_s, is_sure=window.is_sure)
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
    def _last_started(self) -> float:
        """When the last of them began."""
        return max(job.last_started for job in self.queue.stepping)

    @property
    def _true_since(self) -> float:
        """When the first of those began whose token a true step may follow; infinity: none may."""
        jobs = self.queue.stepping
        began = [job.started for job in jobs if job.window is None or not job.window.counts_on]
        return min(began, default=math.inf)

    def _best_draft(self) -> tuple[Job, Guess] | None:
        """The draft that is right most often, of the requests whose steps are computed alone."""
        drafts = [
            (job, Guess(draft.token, 0.0, job.window.chance * self.guessing.chance(draft)))
            for job in self.queue.stepping
            if job.window is not None and job.may_guess and len(self.sharing.of(job.number)) <= 1
            if (draft := job.window.draft(job.stop)) is not None
        ]
        best = max(drafts, key=lambda found: found[1].chance, default=None)
        return best if best is not None and best[1].chance >= LEAST_CHANCE else None
