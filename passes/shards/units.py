"""Units: indices of tensors that devices can only have together, found by following a division through operators."""

from __future__ import annotations

from dataclasses import dataclass

from partc.ir.graph import Value


class Refusal(Exception):
    """The reason why a value cannot be divided."""


@dataclass(frozen=True)
class Division:
    """A value whose indices along one axis belong to units; all other axes are whole."""

    axis: int
    units: tuple[int, ...]
    """For each index the number of its unit, as `Units` knows it."""


class Units:
    """Units that are merged as operators ask for it: the heads of a group, the numbers of a head."""

    def __init__(self, count: int) -> None:
        """So many units of one index each."""
        self._parent = list(range(count))

    def find(self, unit: int) -> int:
        """The unit that this one has become."""
        while self._parent[unit] != unit:
            self._parent[unit] = self._parent[self._parent[unit]]
            unit = self._parent[unit]
        return unit

    def merge(self, *units: int) -> int:
        """One unit of several: the first of them."""
        first = min(map(self.find, units))
        for unit in units:
            self._parent[self.find(unit)] = first
        return first

    def agree(self, a: Division, b: Division) -> None:
        """Merge what two readers of one value ask for.

        Raises:
            Refusal: they divide different axes.
        """
        if a.axis != b.axis:
            raise Refusal("two readers divide it along different axes")
        for left, right in zip(a.units, b.units, strict=True):
            self.merge(left, right)

    def rows(self, units: tuple[int, ...], count: int) -> tuple[int, ...]:
        """The units of `count` rows of equal length, each of which becomes one unit."""
        size = len(units) // count
        return tuple(self.merge(*units[row * size : (row + 1) * size]) for row in range(count))


def sizes_of(value: Value) -> tuple[int | str, ...]:
    """The sizes of a value, which must have been inferred."""
    assert value.shape is not None
    return value.shape


def known(size: int | str) -> int:
    """A size that does not depend on the step.

    Raises:
        Refusal: it does.
    """
    if not isinstance(size, int):
        raise Refusal(f"the size {size} is not known before the step")
    return size
