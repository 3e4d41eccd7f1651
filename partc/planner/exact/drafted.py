"""The best plan where a share g of the tokens is guessed, and the proof that it is (`partc.planner.model.drafted`).

Of one device there is one plan; what follows is about the others, of which guesses fill the idle time.

With A the latency in which decode counts (1 - g) times, w the weight of decode, S the longest busy time of a step (and
the twentieth that the source leaves besides), and L its lap, a plan costs `max(A + g·w·S, A + g·w·L / 8)`. The second
is a latency. For the first, busy times are divided: under a limit of S, which is one more constraint of intervals and
messages like memory, the least A is a latency too. If it is A(c) for S ≤ c and is reached by a plan whose S is s, no
plan with S in [s, c] costs less than A(c) + g·w·s, which that plan does; and none with S in [b, s) less than
A(c) + g·w·b. That range is halved, the one with the least bound first, until no range can hold a better plan. The least
S of all, a throughput without latencies of links, is where the ranges begin.

Plans whose lap is less than `LEAST_ROOM` · S have no time for guesses: they cost a whole latency, and no less than the
least of all, so that one search settles them. Where a limit leads to such a plan, others in its range have a lap of at
least `LEAST_ROOM` · s, which bounds them.

Where a plan may return to a device, the limit of S is kept by checks alone, and A(c) is the least A without it: the
bound holds, and the gap may stay. So may it where S and L / 8 are as long as each other, or where the best lap has no
time for guesses and nearly everything is guessed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from partc.format.placement import Stage
from partc.planner.exact.solution import Best, Solution, bound_of
from partc.planner.model.drafted import MOST_AHEAD, Pace, pace_of
from partc.planner.model.effort import Budget, Effort
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Phase, Problem
from partc.runtime.core.source.guessing import LEAST_ROOM, SLACK

_NEAR = 1e-9
"""Costs that differ by less, relatively, are equal."""
_MOST_LIMITS = 60
"""Limits of busy times that are tried at most."""

Seek = Callable[..., Best]
"""`(problem, *, within)`: the best plan of a problem without guesses."""


def seek_drafted(
    problem: Problem,
    seek: Seek,
    effort: Effort,
    within: Budget | None = None,
    *,
    must_use_others: bool = False,
) -> Best:
    """The best plan that is found, and whether it is proven.

    Args:
        problem: a latency, in which some tokens are guessed.
        seek: finds the best plan of a problem without guesses.
        effort: of the whole search; its parts take turns.
        within: work that several solves have in common.
        must_use_others: whether a plan of the source alone does not count.
    """
    most = effort.programme + effort.search + effort.returns
    budget = Budget(min(most, within.left if within else math.inf), effort.limit_s, within)
    search = _Search(
        problem, seek, budget, _MOST_LIMITS if effort.proves else 2, must_use_others=must_use_others
    )
    search.run()
    return search.best()


@dataclass(frozen=True, order=True)
class _Range:
    """Plans whose longest busy time is in a range."""

    bound_s: float
    """None of them costs less."""
    least_s: float
    most_s: float


class _Search:
    def __init__(
        self, problem: Problem, seek: Seek, budget: Budget, limits: int, *, must_use_others: bool
    ) -> None:
        assert problem.decode is not None
        self._problem, self._seek, self._budget, self._limits = problem, seek, budget, limits
        self._decode: Phase = problem.steps[problem.decode]
        self._at = problem.decode
        self._must_use_others = must_use_others
        self._guessed = problem.drafted * self._decode.weight
        """g · w."""
        self._paced = self._guessed * SLACK
        self._solution: Solution | None = None
        self._bound = math.inf
        """No plan costs less than this or the one of one device."""
        self._prompt_s = 0.0
        """No plan takes less for all that is not decode."""
        self._trouble = ""
        self._tried = 0

    @property
    def _cost(self) -> float:
        return self._solution.value if self._solution else math.inf

    def best(self) -> Best:
        """The best plan that was found."""
        if self._solution is None:
            is_proven = math.isinf(self._bound)
            return Best(None, is_proven, "" if is_proven else self._trouble or "out of work")
        is_proven = self._bound >= self._cost * (1 - 2 * _NEAR)
        bound = self._cost if is_proven else bound_of(self._problem, self._cost, self._bound)
        tried = f", under {self._tried} limits of busy times" if self._tried else ""
        method = f"{self._solution.method}{tried}{'' if is_proven else ', stopped before the proof'}"
        return Best(replace(self._solution, bound=bound, method=method), is_proven)

    def run(self) -> None:
        """One device, then several."""
        self._offer_alone()
        if any(phase.weight for at, phase in enumerate(self._problem.steps) if at != self._at):
            self._prompt_s = self._ask(self._weighed(replace(self._decode, weight=0.0)))
        lap = self._decode.weight * (1.0 - self._problem.drafted) + self._guessed / MOST_AHEAD
        in_room = self._ask(self._weighed(replace(self._decode, weight=lap)))
        without = self._ask(self._weighed(self._decode))
        self._bound = min(without, max(in_room, self._divide(self._least_busy_s(), in_room)))

    def _offer_alone(self) -> None:
        """The plan of the source alone, whose guesses are rows beside its tokens; none where it does not fit."""
        if self._must_use_others:
            return
        stages = (Stage((0, len(self._problem.submodules) - 1), (self._problem.source,)),)
        evaluation = evaluate(self._problem, stages)
        if evaluation.value is not None:
            self._solution = Solution(stages, evaluation, None, "dynamic programming")

    def _divide(self, least_s: float, in_room: float) -> float:
        """The bound of guesses ahead; no plan is busy for less than `least_s`, none costs less than `in_room`."""
        if not any(phase.weight for phase in self._limited(math.inf).steps):
            return max(self._paced * least_s, self._least_with_room(least_s))
        ranges = [_Range(in_room, least_s, math.inf)]
        closed = math.inf
        while ranges and ranges[0].bound_s < self._cost * (1 - _NEAR):
            if self._tried >= self._limits or self._budget.is_spent:
                break
            part = heapq.heappop(ranges)
            self._tried += 1
            found = self._seek(self._limited(part.most_s), within=self._budget)
            self._note(found)
            if found.solution is None:
                if not found.proven:
                    closed = min(closed, part.bound_s)
                continue
            least = found.solution.bound or 0.0
            pace = self._offer(found.solution)
            busy_s = min(pace.slowest_s, part.most_s)
            bound = max(part.bound_s, least + self._paced * busy_s)
            closed = min(closed, bound if pace.has_room else max(bound, self._least_with_room(busy_s)))
            # What is left is busy for less than that plan.
            if busy_s > part.least_s * (1 + _NEAR):
                middle = (part.least_s + busy_s) / 2
                for low, high in ((part.least_s, middle), (middle, busy_s * (1 - _NEAR))):
                    bound = max(part.bound_s, least + self._paced * low, self._least_with_room(low))
                    heapq.heappush(ranges, _Range(bound, low, high))
        return min([closed, *(part.bound_s for part in ranges)])

    def _least_with_room(self, busy_s: float) -> float:
        """No plan with time for guesses costs less that is busy for so long."""
        true = (self._decode.weight - self._guessed) * LEAST_ROOM
        return self._prompt_s + (true + self._paced) * busy_s

    def _least_busy_s(self) -> float:
        """No plan has a lesser longest busy time in a step of decode."""
        links = tuple(replace(link, latency_s=0.0) for link in self._problem.links)
        alone = self._weighed(replace(self._decode, weight=1.0), others=0.0)
        found = self._seek(replace(alone, objective="throughput", links=links), within=self._budget)
        self._note(found)
        if found.solution is None:
            return math.inf if found.proven else 0.0
        self._offer(found.solution)
        return 1.0 / found.solution.bound if found.solution.bound else 0.0

    def _limited(self, most_busy_s: float) -> Problem:
        """The latency in which decode counts as far as its tokens are not guessed, under a limit."""
        weight = self._decode.weight * (1.0 - self._problem.drafted)
        problem = self._weighed(replace(self._decode, weight=weight))
        return problem if math.isinf(most_busy_s) else replace(problem, most_busy_s=most_busy_s)

    def _weighed(self, decode: Phase, others: float = 1.0) -> Problem:
        """The problem without guesses, with another phase of decode; the weights of others are so many times theirs."""
        steps = [replace(phase, weight=others * phase.weight) for phase in self._problem.steps]
        steps[self._at] = decode
        return replace(self._problem, drafts=None, phases=tuple(steps))

    def _ask(self, problem: Problem) -> float:
        """The least latency of a problem, whose plan is offered."""
        found = self._seek(problem, within=self._budget)
        self._note(found)
        if found.solution is None:
            return math.inf if found.proven else 0.0
        self._offer(found.solution)
        return found.solution.bound or 0.0

    def _note(self, found: Best) -> None:
        self._trouble = found.trouble or self._trouble

    def _offer(self, solution: Solution) -> Pace:
        """Take a plan if it is better than what is known; its pace in decode."""
        evaluation = evaluate(self._problem, solution.stages)
        if evaluation.value is not None and evaluation.value < self._cost:
            self._solution = replace(solution, evaluation=evaluation)
        return pace_of(self._problem, evaluation.phases[self._at])
