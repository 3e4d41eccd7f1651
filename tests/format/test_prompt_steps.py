"""The steps of prompts where there is code for certain numbers of rows: no other sum of sizes costs less."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from partc.format.prompt_steps import Size, most_steps, steps_of

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Those of target tvm."""
INT4, FLOAT32 = 0.35, 0.13
"""Cost of a row beside that of reading the weights, on AVX2."""


def priced(row_cost: float, rows: tuple[int, ...] = SIZES) -> tuple[Size, ...]:
    return tuple((count, round(1000 * (1 + count * row_cost))) for count in rows)


def cost_of(steps: list[int], sizes: tuple[Size, ...]) -> int:
    """What the steps cost, each filled up to the next size."""
    return sum(min(cost for rows, cost in sizes if rows >= step) for step in steps)


@pytest.mark.parametrize("rows", [SIZES, (1, 16, 64, 256), (1, 4, 9, 100), (3, 7)])
@pytest.mark.parametrize("row_cost", [INT4, FLOAT32, 2.0, 0.001])
def test_no_sum_of_sizes_costs_less(rows: tuple[int, ...], row_cost: float) -> None:
    sizes = priced(row_cost, rows)

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


@pytest.mark.parametrize("row_cost", [INT4, FLOAT32])
def test_no_prompt_costs_much_more_than_its_share(row_cost: float) -> None:
    """At most 1.3 times what lies on the line between the sizes around it, and a little more of 5 to 7 tokens."""
    sizes = priced(row_cost)
    costs = dict(sizes)
    for width in range(1, 257):
        below, above = max(s for s in SIZES if s <= width), min(s for s in SIZES if s >= width)
        part = (width - below) / (above - below) if above > below else 0.0
        share = costs[below] + part * (costs[above] - costs[below])
        assert cost_of(steps_of(width, sizes), sizes) <= (1.3 if width > 8 else 1.4) * share, width


def test_examples() -> None:
    sizes = priced(INT4, (1, 16, 64, 256))
    assert [steps_of(width, sizes) for width in (1, 16, 17, 65, 257, 600)] == [
        [1], [16], [16, 1], [64, 1], [256, 1], [256, 256, 64, 16, 8],
    ]  # fmt: skip
