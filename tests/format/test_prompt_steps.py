"""The steps of prompts where there is code for certain numbers of rows: no other sum of sizes costs less."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest

from partc.format.prompt_steps import Size, most_steps, steps_of, useful

SIZES = (1, 2, 4, 6, 8, 12, 16, 32, 64, 256)
WIDE_SIZES = (1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 64, 256)
"""Those of target tvm, and with VNNI of 512 bits."""
INT4, FLOAT32, VNNI = (0.25, 0.30), (0.13, 0.13), (0.14, 0.14)
"""Cost of a row beside that of reading the weights, in steps of up to 4 rows and of more; int4 has the other two."""
MEASURED = {
    INT4: [(0.10, 0.23), (0.25, 0.27), (0.30, 0.45)],
    VNNI: [(0.08, 0.08), (0.22, 0.22)],
    FLOAT32: [(0.13, 0.13)],
}
"""What target tvm takes → what it was on several processors."""


def priced(row_costs: tuple[float, float], rows: tuple[int, ...] = SIZES) -> tuple[Size, ...]:
    return useful([(count, round(1000 * (1 + count * row_costs[count > 4]))) for count in rows])


def cost_of(steps: list[int], sizes: Sequence[tuple[int, float]]) -> float:
    """The cost of steps, each filled up to the next size."""
    return sum(min(cost for rows, cost in sizes if rows >= step) for step in steps)


@pytest.mark.parametrize("rows", [SIZES, (1, 16, 64, 256), (1, 4, 9, 100), (3, 7)])
@pytest.mark.parametrize("row_costs", [INT4, FLOAT32, VNNI, (2.0, 2.0), (0.001, 0.001)])
def test_no_sum_of_sizes_costs_less(rows: tuple[int, ...], row_costs: tuple[float, float]) -> None:
    sizes = priced(row_costs, rows)

    @cache
    def least(width: int) -> int:
        return 0 if width <= 0 else min(cost + least(width - count) for count, cost in sizes)

    for width in range(1, 3 * rows[-1]):
        steps = steps_of(width, sizes)
        assert sum(steps) == width
        assert steps == sorted(steps, reverse=True)
        # Sizes that do not divide each other leave something over now and then.
        slack = 1.0 if all(large % small == 0 for small, large in pairwise(rows)) else 1.25
        assert cost_of(steps, sizes) <= slack * least(width)
        assert len(steps) <= most_steps(width, sizes) <= most_steps(1000, sizes)


@pytest.mark.parametrize(
    ("taken", "measured"), [(taken, each) for taken, some in MEASURED.items() for each in some]
)
def test_no_prompt_costs_much_more_than_its_share(
    taken: tuple[float, float], measured: tuple[float, float]
) -> None:
    """The share lies on the line between the sizes around it. Without parts, 65 tokens cost 3.8 times theirs."""
    bound = 1.35 if taken == FLOAT32 else 1.3
    sizes = priced(taken, WIDE_SIZES if taken == VNNI else SIZES)
    costs = {rows: 1 + rows * measured[rows > 4] for rows, _ in sizes}
    for width in range(1, 257):
        below, above = max(s for s in costs if s <= width), min(s for s in costs if s >= width)
        part = (width - below) / (above - below) if above > below else 0.0
        share = costs[below] + part * (costs[above] - costs[below])
        assert cost_of(steps_of(width, sizes), tuple(costs.items())) <= bound * share, width


def test_sizes_that_smaller_ones_replace_are_left_out() -> None:
    assert useful([(8, 45), (1, 14), (4, 22), (16, 80)]) == ((1, 14), (4, 22), (16, 80))


def test_examples() -> None:
    sizes = priced((0.35, 0.35), (1, 16, 64, 256))
    assert [steps_of(width, sizes) for width in (1, 16, 17, 65, 257, 600)] == [
        [1], [16], [16, 1], [64, 1], [256, 1], [256, 256, 64, 16, 8],
    ]  # fmt: skip
