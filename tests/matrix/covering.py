"""Cells that hold all pairs of values: greedily, the cell with most new pairs next; the same ones on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.matrix.axes import AXES, Cell, Pair, pairs_of


def covering(cells: Iterable[Cell], counts: Callable[[Pair], bool] = lambda _: True) -> list[Cell]:
    """Cells of these that hold every pair that any of them holds; O(cells² · axes²) in the worst case.

    Args:
        cells: to choose from.
        counts: whether a pair must be there.
    """
    held = {tuple(cell.values()): frozenset(filter(counts, pairs_of(cell))) for cell in cells}
    left = frozenset[Pair]().union(*held.values())
    chosen: list[Cell] = []
    while left:
        values = max(held, key=lambda each: (len(held[each] & left), each))
        left -= held[values]
        chosen.append(dict(zip(AXES, values, strict=True)))
    return chosen
