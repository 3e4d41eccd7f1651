"""The least element of many overlapping stretches of an array, all at once (a sparse table)."""

from __future__ import annotations

import numpy as np

from partc.planner.exact.tables import Array, Indices


class Windows:
    """Stretches [first, last] of columns of n + 1 rows: one per row and column, empty where last < first."""

    def __init__(self, first: Indices, last: Indices) -> None:
        """Both [row, column]. A stretch is covered by two of equal power-of-two length."""
        self.rows = len(first)
        length = last - first + 1
        empty = length <= 0
        self.level = np.where(empty, 0, np.frexp(np.maximum(length, 1))[1] - 1)
        self.depth = int(self.level.max()) + 1
        self.first = np.where(empty, self.rows, first)
        self.second = np.where(empty, self.rows, last - 2**self.level + 1)

    def minimum(self, values: Array, columns: Indices) -> Array:
        """[row, x]: least of `values` [row, x] in the stretches of column `columns[x]`. O(n log n) each."""
        table = np.full((self.depth, self.rows + 1, len(columns)), np.inf)
        table[0, : self.rows] = values
        for level in range(1, self.depth):
            half = 2 ** (level - 1)
            np.minimum(table[level - 1, :-half], table[level - 1, half:], out=table[level, :-half])
            table[level, -half:] = table[level - 1, -half:]
        levels, x = self.level[:, columns], np.arange(len(columns))
        left, right = table[levels, self.first[:, columns], x], table[levels, self.second[:, columns], x]
        return np.asarray(np.minimum(left, right))

    def flat(self) -> tuple[Indices, Indices]:
        """The places of each stretch's two halves in a flattened table [level, row, column]."""
        columns = self.first.shape[1]
        base = self.level * (self.rows + 1)
        x = np.arange(columns)[None, :]
        return (base + self.first) * columns + x, (base + self.second) * columns + x
