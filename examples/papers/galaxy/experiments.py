"""Table IV and Fig. 8 to 11: every cell planned and simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from examples.papers.galaxy.fit import local_seconds, strong_scaling, weak_scaling
from examples.papers.galaxy.paper import ENVIRONMENTS, LENGTH, MBIT, MODELS, STRONG, TABLE_IV
from examples.papers.galaxy.testbed import Fit, table_iv_problem
from partc.planner.groups.evaluate import evaluate_shared
from partc.planner.solve import solve

BANDWIDTHS = (62.5, 125.0, 250.0, 500.0, 1000.0)
"""Mbit/s of the sweep; the paper's text names 125 alone."""
BASELINES = ("megatron", "sequence-parallel")


@dataclass(frozen=True)
class Row:
    """One model in one environment; seconds, None where out of memory."""

    model: str
    environment: str
    mbit: float
    local_s: float | None
    """One board, the source."""
    galaxy_s: float | None
    without_overlap_s: float | None
    """The same shares, but messages wait until products are done."""
    megatron_s: float | None
    sequence_s: float | None
    pipeline_s: float | None
    """The best plan with one device a stage."""

    def over(self, other_s: float | None) -> float | None:
        """Galaxy's speed-up over another method."""
        return None if self.galaxy_s is None or other_s is None else other_s / self.galaxy_s


def row(model: str, environment: str, fit: Fit, mbit: float = MBIT) -> Row:
    """One cell of Table IV, Fig. 8 or Fig. 9."""
    problem = table_iv_problem(model, environment, fit, rows=LENGTH, mbit=mbit)
    plan = solve(problem, "galaxy", explained=False)
    plain = evaluate_shared(problem, plan.phases, overlap=False).value if plan.phases else None
    megatron, sequence = (solve(problem, name, explained=False).value for name in BASELINES)
    pipeline = solve(problem, explained=False).value
    return Row(
        model, environment, mbit, local_seconds(problem), plan.value, plain, megatron, sequence, pipeline
    )


def table_iv(fit: Fit) -> list[Row]:
    """All cells of Table IV."""
    return [row(model, environment, fit) for model, environment in TABLE_IV]


def figure_8(fit: Fit) -> list[Row]:
    """The models of Table IV in environments A to C at every bandwidth."""
    return [row(model, environment, fit, mbit) for model, environment in TABLE_IV for mbit in BANDWIDTHS]


def figure_9(fit: Fit) -> list[Row]:
    """All models in the environments of unlike boards."""
    unlike = [name for name, boards in ENVIRONMENTS.items() if len(set(boards)) > 1]
    return [row(model, environment, fit) for model in MODELS for environment in unlike]


@dataclass(frozen=True)
class Scaling:
    """One model on one to four boards."""

    model: str
    boards: int
    strong: float
    """Speed-up over one board."""
    weak: float
    """Part of linear scaling."""


def figures_10_and_11(fit: Fit, counts: Sequence[int] = (2, 3, 4)) -> list[Scaling]:
    """Weak and strong scaling."""
    return [
        Scaling(model, count, strong_scaling(model, fit, count), weak_scaling(model, fit, count))
        for model in STRONG
        for count in counts
    ]


def range_of(values: Iterable[float | None]) -> tuple[float, float]:
    """The least and the most of those that are known."""
    known = [value for value in values if value is not None]
    return min(known), max(known)


def errors(rows: Sequence[Row]) -> list[float]:
    """Relative error of each speed-up of Table IV that the paper has."""
    found = []
    for item in rows:
        theirs = TABLE_IV[item.model, item.environment] or (None, None)
        ours = item.over(item.megatron_s), item.over(item.sequence_s)
        found += [
            abs(a / b - 1) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None
        ]
    return found
