"""The best shares by Galaxy's Eq. 5, exactly: what Algorithm 1 looks for.

    min  max_d L(MHA, a_d, d) + max_d L(MLP, b_d, d)    such that memory suffices on every device

in whole units, L in proportion to the units. (The third term, of what connects the blocks, is the same for all.) For
each value that the first maximum can have, the least second one is found by bisection, if any would be better; whether
shares within both exist is a dynamic programme over the devices: the most columns that fit beside each number of heads.
O(devices · heads · log(devices · columns) · devices · heads²).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partc.planner.groups.algorithm1 import Shares
from partc.planner.groups.capacity import Layers

_SLACK = 1e-12
"""Relative; values that differ by rounding alone are the same."""
_NONE = -1
"""Units of a device that has no room."""


@dataclass(frozen=True)
class _Limits:
    """The most that each device may take within a maximum of the first and of the second kind."""

    first: tuple[int, ...]
    second: tuple[int, ...]


def eq5_seconds(layers: Layers, shares: Sequence[Sequence[int]]) -> float:
    """The value of Eq. 5 without what connects the blocks."""
    return sum(
        max(kind.seconds[d] * units / kind.units for d, units in enumerate(mine))
        for kind, mine in zip(layers.kinds, shares, strict=True)
    )


def best_shares(layers: Layers) -> Shares | None:
    """The shares with the least value of Eq. 5, or None where none fit."""
    best, found = math.inf, None
    seconds = _maxima(layers, 1) if len(layers.kinds) > 1 else [0.0]
    for first_s in _maxima(layers, 0):
        better = seconds[: bisect_left(seconds, best - first_s)]
        shares = _least(layers, first_s, better) if better else None
        if shares is not None and (value := eq5_seconds(layers, shares)) < best:
            best, found = value, shares
    return found


def _maxima(layers: Layers, number: int) -> list[float]:
    """The values that the maximum of a kind can have, in order."""
    kind = layers.kinds[number]
    steps = {seconds * k / kind.units for seconds in kind.seconds for k in range(kind.units + 1)}
    return sorted(steps)


def _least(layers: Layers, first_s: float, seconds: Sequence[float]) -> Shares | None:
    """The shares within the first maximum whose second one is least, by bisection."""
    low, high = 0, len(seconds) - 1
    found = _shares_within(layers, _limits(layers, (first_s, seconds[high])))
    while found is not None and low < high:
        middle = (low + high) // 2
        shares = _shares_within(layers, _limits(layers, (first_s, seconds[middle])))
        if shares is None:
            low = middle + 1
        else:
            high, found = middle, shares
    return found


def _limits(layers: Layers, maxima: tuple[float, float]) -> _Limits:
    most = [
        tuple(
            kind.units
            if not seconds
            else min(kind.units, math.floor(limit * kind.units / seconds * (1 + _SLACK)))
            for seconds in kind.seconds
        )
        for kind, limit in zip(layers.kinds, maxima, strict=False)
    ]
    return _Limits(most[0], most[1] if len(most) > 1 else (0,) * len(layers.names))


def _shares_within(layers: Layers, limits: _Limits) -> Shares | None:
    """Shares within these limits that memory has room for. O(devices · heads²)."""
    heads = layers.kinds[0].units
    tables = [_room(layers, limits, d) for d in range(len(layers.names))]
    totals, choices = [np.where(np.arange(heads + 1) == 0, 0, _NONE)], list[NDArray[np.int64]]()
    for table in tables:
        total, choice = _extend(totals[-1], table)
        totals.append(total)
        choices.append(choice)
    columns = layers.kinds[1].units if len(layers.kinds) > 1 else 0
    if totals[-1][heads] < columns:
        return None
    firsts, left = list[int](), heads
    for choice in reversed(choices):
        firsts.append(int(choice[left]))
        left -= firsts[-1]
    firsts.reverse()
    if len(layers.kinds) == 1:
        return (tuple(firsts),)
    seconds, spare = list[int](), columns
    for table, units in zip(tables, firsts, strict=True):
        seconds.append(min(spare, int(table[units])))
        spare -= seconds[-1]
    return tuple(firsts), tuple(seconds)


def _room(layers: Layers, limits: _Limits, device: int) -> NDArray[np.int64]:
    """The most columns on a device beside each number of heads; `_NONE` where the heads themselves do not fit."""
    heads, most = layers.kinds[0], limits.second[device]
    counts = np.arange(heads.units + 1)
    left = layers.budgets[device] * (1 + _SLACK) - counts * heads.unit_bytes
    columns = np.full(len(counts), most)
    if len(layers.kinds) > 1 and layers.kinds[1].unit_bytes:
        columns = np.minimum(most, np.floor(left / layers.kinds[1].unit_bytes).astype(np.int64))
    return np.where((left < 0) | (counts > limits.first[device]), _NONE, columns)


def _extend(
    total: NDArray[np.int64], table: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The most columns for each number of heads with one device more, and the heads of that device."""
    size = len(total)
    sums = np.full((size, size), _NONE)  # [heads in all, heads of this device]
    for units in range(size):
        if table[units] >= 0:
            before = total[: size - units]
            sums[units:, units] = np.where(before >= 0, before + table[units], _NONE)
    return sums.max(axis=1), sums.argmax(axis=1)
