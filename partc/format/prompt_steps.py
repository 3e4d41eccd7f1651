"""The steps of a prompt where code exists for certain numbers of rows only; both runners follow this rule.

A prompt goes in as many steps of the largest size that fits into it as there is room for, and what is left over goes
as a prompt of that length would; or it goes in one step of the next larger size, filled up, where that costs no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Size = tuple[int, int]
"""Rows of a step that there is code for, and the cost of such a step."""


def steps_of(width: int, sizes: Sequence[Size]) -> list[int]:
    """The rows of each step of a prompt of `width` tokens, the most first; O(steps + sizes²).

    `sizes`: not empty, smallest first, and `useful`.
    """
    return _cheapest(width, sizes)[1]


def _cheapest(width: int, sizes: Sequence[Size]) -> tuple[int, list[int]]:
    """Cost and rows of the steps."""
    if width == 0:
        return 0, []
    fitting = sum(rows <= width for rows, _ in sizes)
    filled = (sizes[fitting][1], [width]) if fitting < len(sizes) else None
    if fitting == 0:
        return sizes[0][1], [width]
    rows, cost = sizes[fitting - 1]
    count, left = divmod(width, rows)
    left_cost, others = _cheapest(left, sizes)
    exact = (count * cost + left_cost, [rows] * count + others)
    return filled if filled and filled[0] <= exact[0] else exact


def useful(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The sizes without those that cost as much as several smaller ones for the same rows; smallest first."""
    found: list[Size] = []
    for rows, cost in sorted(sizes):
        if not found or cost < _cheapest(rows, found)[0]:
            found.append((rows, cost))
    return tuple(found)


def most_steps(width: int, sizes: Sequence[Size]) -> int:
    """A bound on the steps of prompts of up to `width` tokens."""
    between = sum(math.ceil(larger / smaller) for (smaller, _), (larger, _) in pairwise(sizes))
    return 1 + between + width // sizes[-1][0]
