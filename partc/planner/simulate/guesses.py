"""One request that has its ring for itself, with guessed tokens: which steps begin ahead, and which are void.

The rules are those of the source (`partc/runtime/core/source/guessed_steps.py`), and the figures that it would have
measured are those of the plan: so many guesses go beside a token as bring most tokens in a time, and a step begins with
a guess where no true step is expected to wait for it. A draft is right or wrong by a seeded coin, as often as is said.

Steps keep their order on every device and link, so that each is followed to its token when it begins; a link may carry
the next message when it has sent, before the latency of the last one is over. A void step is computed to its end.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from partc.errors import PlanError
from partc.format.placement import Stages
from partc.planner.model.drafted import pace_of
from partc.planner.model.evaluate import ValueKey, follow_step, traffic_between
from partc.planner.model.problem import Link, Phase, Problem
from partc.planner.model.stages import SOURCE, Ends
from partc.planner.simulate.case import Case, planned_workflow
from partc.planner.simulate.demand import Noise
from partc.planner.simulate.result import GUESSES, Guess, Simulation, Span, Transfer
from partc.runtime.client.results import GuessCounts
from partc.runtime.core.source.guessing import LEAST_CHANCE, SURE, Guessing
from partc.runtime.core.step import MOST_GUESSED


def simulate_guesses(
    case: Case, tokens: int, chance: float, *, jitter: float = 0.0, seed: int = 0
) -> Simulation:
    """The course of a request of which each draft is right with this chance.

    Raises:
        PlanError: nothing is guessed in this plan, or its stages have several devices.
    """
    problem = case.problem
    if problem.drafts is None or problem.decode is None or case.phases:
        reason = "its stages have several devices" if case.phases else "its model or its batch allows none"
        raise PlanError(f"no guesses are followed in this plan: {reason}", where="--drafted")
    return _Request(case, tokens, chance, Noise(jitter, seed), random.Random(f"{seed}/drafts")).run()


@dataclass(slots=True)
class _Step:
    first: int
    """Number of the token that its first row takes; the prompt's last is -1."""
    rows: int
    leads: bool
    """Whether it began with a guess."""
    chance: float
    """How often all of its guesses, and those before it, are right."""
    arrives_s: float
    guess: Guess = ""


@dataclass(slots=True)
class _Line:
    """Devices and links in the order of a step, and when each is free."""

    problem: Problem
    stages: Stages
    noise: Noise
    free_s: dict[str, float] = field(default_factory=dict)
    spans: list[tuple[Span, _Step]] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)

    def follow(self, phase: Phase, now: float, number: int, step: _Step, factor: float) -> float:
        """A step from its begin to its token; devices take `factor` times as long, links send as many rows."""
        traffic = traffic_between(phase.edges, self.stages)
        if self.stages[-1].device != self.problem.source:
            back: Mapping[ValueKey, float] = {(0, "return", -1): phase.return_bytes}
            traffic = {**traffic, (len(self.stages) - 1, SOURCE): dict(back)}
        ready = [now] * len(self.stages)
        for place, stage in enumerate(self.stages):
            seconds = factor * sum(phase.time_s[j][stage.device] for j in stage.indices)
            start = max(ready[place], self.free_s.get(stage.device, 0.0))
            now = start + seconds * self.noise.factor(stage.device, 0)
            self.free_s[stage.device] = now
            self.spans.append((Span(stage.device, 0, phase.name, number, place, start, now), step))
            for (sender, receiver), values in traffic.items():
                if sender == place:
                    arrived = self._send(
                        (sender, receiver), step.rows * sum(values.values()), now, phase, number
                    )
                    if receiver == SOURCE:
                        return arrived
                    ready[receiver] = max(ready[receiver], arrived)
        return now

    def _send(self, ends: Ends, size: float, now: float, phase: Phase, number: int) -> float:
        sender, receiver = (self.stages[end].device for end in ends)
        link: Link = self.problem.link_of[sender, receiver]
        name = f"{sender}->{receiver}"
        noise = self.noise.factor(name, 0)
        start = max(now, self.free_s.get(name, 0.0))
        free = start + noise * size / link.bandwidth_bytes_per_s
        self.free_s[name] = free
        end = free + noise * link.latency_s
        self.transfers.append(Transfer(sender, receiver, 0, phase.name, number, size, start, end, free))
        return end


class _Request:
    def __init__(self, case: Case, tokens: int, chance: float, noise: Noise, coin: random.Random) -> None:
        assert case.problem.drafts is not None
        assert case.problem.decode is not None
        self._case, self._tokens, self._chance = case, tokens, chance
        self._line = _Line(case.problem, case.stages, noise)
        self._right = [coin.random() < chance for _ in range(tokens + MOST_GUESSED)]
        """Whether the draft of each token is right."""
        self._decode = case.problem.steps[case.problem.decode]
        self._prices = {1: 1.0, **dict(case.problem.drafts.step_tokens)}
        self._guessing = self._knowledge()
        self._flight: deque[_Step] = deque()
        self._left_s, self._left_rows = 0.0, 1
        """When the last step began, and with how many rows."""
        self._steps = self._drafted = self._accepted = 0
        self._token_s: list[float] = []

    def run(self) -> Simulation:
        """Follow it to its last token."""
        self._begin(0.0, first=-1, rows=1)
        while len(self._token_s) < self._tokens:
            awaited = self._flight[0]
            leaves = self._guess_leaves(self._token_s[-1] if self._token_s else math.inf)
            if leaves < awaited.arrives_s:
                self._guess(leaves)
            else:
                self._arrive(self._flight.popleft())
        spans = tuple(replace(span, guess=step.guess) for span, step in self._line.spans)
        return Simulation(
            mode=GUESSES,
            spans=tuple(sorted(spans, key=lambda span: span.start_s)),
            transfers=tuple(self._line.transfers),
            token_s=(tuple(self._token_s[: self._tokens]),),
            limit=planned_workflow(self._case).limit(self._tokens),
            drafted=GuessCounts(self._tokens, self._drafted, self._accepted),
        )

    def _knowledge(self) -> Guessing:
        """The figures that the source would have measured of this ring."""
        problem = self._case.problem
        alone = follow_step(problem, self._decode, self._case.stages)
        pace = pace_of(problem, alone)
        devices = {stage.device for stage in self._case.stages}
        stage_s = max(sum(run.seconds for run in alone.stages if run.device == name) for name in devices)
        costs = [(rows, round(1000 * cost)) for rows, cost in self._prices.items() if rows > 1]
        guessing = Guessing(costs, len(devices))
        guessing.lap_s, guessing.stage_s = pace.lap_s, stage_s
        guessing.link_s = pace.slowest_s if pace.slowest_s > stage_s else 0.0
        return guessing

    # -- what begins

    def _begin(self, now: float, first: int, rows: int, *, leads: bool = False, chance: float = 1.0) -> None:
        steps = self._case.problem.steps
        phase = self._decode if first >= 0 else steps[0]
        step = _Step(first, rows, leads, chance, 0.0)
        step.arrives_s = self._line.follow(phase, now, self._steps, step, self._prices[rows])
        self._steps += 1
        self._drafted += rows - 1 + leads
        self._flight.append(step)
        self._left_s, self._left_rows = now, rows

    def _guess_leaves(self, now: float) -> float:
        """When a step begins with a guess; infinity: none does before the next token."""
        guessing, last = self._guessing, self._flight[-1]
        following = last.first + last.rows
        is_wanted = (
            last.first >= 0 and following < self._tokens - 1 and last.chance * self._chance >= LEAST_CHANCE
        )
        out = following - self._flight[0].first
        if not is_wanted or len(self._flight) >= guessing.most or out > MOST_GUESSED:
            return math.inf
        leaves = max(now, self._left_s + guessing.pace_of(self._left_rows))
        return leaves if guessing.has_time(self._expected(), leaves) else math.inf

    def _expected(self) -> float:
        """When a true step may follow; infinity where the guess for the awaited token is as good as right."""
        is_guessed = len(self._flight) > 1 or self._flight[0].rows > 1
        return math.inf if is_guessed and self._chance >= SURE else self._flight[0].arrives_s

    def _guess(self, now: float) -> None:
        last = self._flight[-1]
        chance = last.chance * self._chance
        rows = self._rows(last.first + last.rows, chance, self._expected() - now)
        self._begin(now, last.first + last.rows, rows, leads=True, chance=chance * self._chance ** (rows - 1))

    def _rows(self, first: int, before: float, time_s: float = math.inf) -> int:
        """Rows of a step: as many as bring most tokens in a time."""
        out = first - (self._flight[0].first if self._flight else first)
        most = min(self._guessing.most_further, MOST_GUESSED - out, self._tokens - 2 - first)
        chances = [self._chance ** (at + 1) for at in range(max(0, most))]
        chances = [each for each in chances if before * each >= LEAST_CHANCE]
        return self._guessing.tokens(chances, time_s)

    # -- what arrives

    def _arrive(self, step: _Step) -> None:
        """The tokens of a step are there: those of its rows up to the first guess that was wrong."""
        now = step.arrives_s
        beside = self._right[step.first + 1 : step.first + step.rows]
        right = beside.index(False) if False in beside else len(beside)
        step.guess = "right" if step.leads else ""
        self._accepted += right
        self._token_s += [now] * (right + 1)
        following = step.first + right + 1
        goes_on = right == len(beside) and bool(self._flight) and self._right[following]
        if goes_on:
            self._accepted += 1
            return
        for void in self._flight:
            void.guess = "void"
        self._flight.clear()
        if len(self._token_s) < self._tokens:
            rows = self._rows(following, 1.0)
            self._begin(now, following, rows, chance=self._chance ** (rows - 1))
