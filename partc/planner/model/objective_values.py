"""Values of a plan as people read them: per token where a model generates, else per step.

Seconds *per token* are those of one sequence: a step makes a token of each sequence of the batch, and takes so
long for all of them together. Tokens *per second* are those of all sequences.
"""

from __future__ import annotations

from partc.config.units import format_seconds
from partc.planner.model.objectives import by_objective, is_less_better
from partc.planner.model.problem import Problem

SAME = 1e-9
"""Values that differ by less than this part are the same."""


def unit(problem: Problem) -> str:
    """The product of a step: a model with a decode phase makes a token of each sequence."""
    return "token" if any(phase.name == "decode" for phase in problem.phases) else "step"


def seconds_per_token(problem: Problem, value: float) -> float:
    """Seconds for each token of a sequence, whatever the batch: a latency, or the time between two steps."""
    return by_objective(problem.objective, latency=value, throughput=_inverse(value))


def tokens_per_s(problem: Problem, value: float) -> float:
    """Tokens of all sequences of one request per second (latency), or of all requests (throughput)."""
    made = by_objective(problem.objective, latency=_inverse(value), throughput=value)
    return made * problem.batch


def rate(problem: Problem, value: float) -> float:
    """The rate of a plan in its `unit` per second: tokens of all sequences, or steps."""
    made = tokens_per_s(problem, value)
    return made if unit(problem) == "token" else made / problem.batch


def say_rate(per_second: float) -> str:
    """`24.31`, `31,297`: a rate to four digits and more."""
    return f"{per_second:,.0f}" if per_second >= 999.95 else f"{per_second:.4g}"


def say_value(problem: Problem, value: float) -> str:
    """`41.2 ms per token`, `24.3 tokens/s`, `24.3 steps/s`."""
    made = unit(problem)
    return by_objective(
        problem.objective,
        latency=f"{format_seconds(value)} per {made}",
        throughput=f"{say_rate(rate(problem, value))} {made}s/s",
    )


def say_difference(problem: Problem, other: float, value: float) -> str:
    """The difference of `other` from `value`: `3.10 ms less`, `2.1 more`, `no change`."""
    if is_same(other, value):
        return "no change"
    word = "more" if other > value else "less"
    size = by_objective(
        problem.objective,
        latency=format_seconds(abs(other - value)),
        throughput=say_rate(abs(rate(problem, other) - rate(problem, value))),
    )
    return f"{size} {word}"


def compare(problem: Problem, other: float, value: float) -> str:
    """The end of a sentence about another plan: `takes 52.1 ms per token, 5.37 ms more`."""
    if is_same(other, value):
        return "is no better and no worse"
    verb = by_objective(problem.objective, latency="takes", throughput="makes")
    return f"{verb} {say_value(problem, other)}, {say_difference(problem, other, value)}"


def is_same(a: float, b: float) -> bool:
    """Whether two values differ by rounding alone."""
    return abs(a - b) <= SAME * max(abs(a), abs(b))


def is_better(problem: Problem, a: float, b: float) -> bool:
    """Whether value `a` is better than `b` by more than rounding."""
    return not is_same(a, b) and (a < b) == is_less_better(problem.objective)


def _inverse(value: float) -> float:
    return 1.0 / value if value else float("inf")
