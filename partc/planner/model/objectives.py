"""What plans are compared by: the time of a token, or the number of steps in a second.

| objective | a value is | phases | better |
| --- | --- | --- | --- |
| `latency` | seconds | added up | less |
| `throughput` | steps per second | the busiest device or link decides | more |

An objective is a name of `partc.format.plan.Objective` and a keyword of `by_objective`, through which every room learns
what differs between them; where they are computed in other ways, a `match` ends in `assert_never`. With another one
mypy names each place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TypeVar, assert_never

from partc.format.plan import Objective

_T = TypeVar("_T")


def by_objective(objective: Objective, *, latency: _T, throughput: _T) -> _T:
    """What holds for plans that are compared so; no place has an "else"."""
    match objective:
        case "latency":
            return latency
        case "throughput":
            return throughput
        case _:
            assert_never(objective)


def best_of(objective: Objective) -> Callable[[Iterable[float]], float]:
    """The function that takes the best of several values."""
    return by_objective(objective, latency=min, throughput=max)


def is_less_better(objective: Objective) -> bool:
    """Whether of two values the lesser is better."""
    return by_objective(objective, latency=True, throughput=False)


def seconds_of(objective: Objective, value: float) -> float:
    """Seconds to be minimised: a latency, or the busy time behind a throughput. Its own inverse."""
    return by_objective(objective, latency=value, throughput=1.0 / max(value, sys.float_info.min))
