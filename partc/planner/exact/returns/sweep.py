"""One pass over all sub-modules: every label, or the best few (a beam), whose cut-off still bounds all plans."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from partc.planner.exact.returns.labels import Holding
from partc.planner.exact.returns.space import Space
from partc.planner.model.effort import CALL, Budget, WorkSpent

_CHILD = 10_000
"""Operations of a label's child; they take some 30 µs."""
_COMPARED = 20
"""Operations of comparing two labels."""
_MOST_COMPARED = 3_000
"""Labels that a new one is held against."""
_MOST = 150_000
"""Labels of a layer: more take too much memory."""


class AnyLabel(Protocol):
    """A beginning of a plan."""

    @property
    def device(self) -> int:
        """The device of its last sub-module."""

    @property
    def cost(self) -> float:
        """Its cost so far."""

    @property
    def estimate(self) -> float:
        """At least the cost of every plan that begins like this."""

    @property
    def holding(self) -> Holding:
        """The memory that it uses, by device."""

    @property
    def parent(self) -> AnyLabel | None:
        """The label without its last sub-module."""


Resources = tuple[list[float], list[float]]
"""Numbers, as many for each label of a cut, of which less is better; in two forms."""
_L = TypeVar("_L", bound=AnyLabel)


class Labels(Protocol[_L]):
    """Beginnings of plans under an objective."""

    space: Space

    def root(self) -> _L | None:
        """The first sub-module, on the source; None: it does not fit."""

    def children(self, label: _L, cut: int, upper: float) -> list[_L]:
        """The label with the sub-module behind its cut on each device, as far as they may cost less than `upper`."""

    def value(self, label: _L) -> float:
        """The cost of a complete plan."""

    def key(self, label: _L) -> object:
        """Only labels with equal keys are compared."""

    def resources(self, label: _L, cut: int) -> Resources:
        """What it uses; which of the two forms counts is up to the label that would replace it."""

    def is_simple(self, label: _L, cut: int) -> bool:
        """Whether it replaces others by the second form of what they use, not by the first."""

    def beats(self, one: _L, other: _L, cut: int) -> bool:
        """Whether whatever follows the other costs no less behind the one, which costs and uses no more."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a pass."""

    assignment: list[int] | None
    """The device of each sub-module; None: no plan below the limit was met."""
    least: float
    """No plan below the limit costs less than this; infinite: there is none."""


def sweep(labels: Labels[_L], upper: float, width: int | None, budget: Budget) -> Swept:
    """The best plan that costs less than `upper`; of all labels, or of the best `width` at each cut.

    Raises:
        WorkSpent: the budget does not suffice.
    """
    return _Sweep(labels, upper, width, budget).run()


class _Sweep(Generic[_L]):
    def __init__(self, labels: Labels[_L], upper: float, width: int | None, budget: Budget) -> None:
        self._labels, self._upper, self._width, self._budget = labels, upper, width, budget
        self._cut_off = math.inf

    def run(self) -> Swept:
        labels, root = self._labels, self._labels.root()
        layer = [] if root is None or root.estimate >= self._upper else [root]
        for cut in range(1, labels.space.count):
            self._budget.spend(len(layer) * labels.space.devices * _CHILD)
            if self._budget.is_spent or len(layer) > _MOST:
                raise WorkSpent
            children = [child for label in layer for child in labels.children(label, cut, self._upper)]
            children = self._best(children, None if self._width is None else 4 * self._width)
            layer = self._best(self._unbeaten(children, cut + 1), self._width)
        complete = [(labels.value(label), number) for number, label in enumerate(layer)]
        value, number = min(complete, default=(math.inf, 0))
        if value >= self._upper:
            return Swept(None, self._cut_off)
        assignment, label = [], layer[number]
        place: AnyLabel | None = label
        while place is not None:
            assignment.append(place.device)
            place = place.parent
        return Swept(assignment[::-1], min(self._cut_off, value))

    def _best(self, layer: list[_L], width: int | None) -> list[_L]:
        """The labels with the least estimates; the least one that is left out bounds what it would have led to."""
        if width is None or len(layer) <= width:
            return layer
        layer.sort(key=lambda label: label.estimate)
        self._cut_off = min(self._cut_off, layer[width].estimate)
        return layer[:width]

    def _unbeaten(self, children: list[_L], cut: int) -> list[_L]:
        """The labels that no other one makes superfluous."""
        labels, kept = self._labels, dict[object, _Kept[_L]]()
        children.sort(key=lambda label: label.cost)
        for child in children:
            uses = labels.resources(child, cut)
            mine = kept.setdefault(labels.key(child), _Kept())
            self._budget.spend(CALL + _COMPARED * min(len(mine.labels), _MOST_COMPARED))
            if not any(labels.beats(other, child, cut) for other in mine.that_use_no_more(uses)):
                mine.add(child, uses, is_simple=labels.is_simple(child, cut))
        return [label for mine in kept.values() for label in mine.labels]


class _Kept(Generic[_L]):
    """Labels with equal keys, from the cheapest to the dearest, and what they use."""

    def __init__(self) -> None:
        self.labels: list[_L] = []
        self._uses = np.empty((2, 0, 0))
        self._simple = np.empty(0, bool)

    def that_use_no_more(self, uses: Resources) -> Iterator[_L]:
        """Those that may replace a label that uses so much."""
        count = min(len(self.labels), _MOST_COMPARED)
        if not count:
            return
        fits = [(self._uses[form, :count] <= uses[form]).all(1) for form in (0, 1)]
        for place in np.flatnonzero(np.where(self._simple[:count], fits[1], fits[0])).tolist():
            yield self.labels[place]

    def add(self, label: _L, uses: Resources, *, is_simple: bool) -> None:
        """One more, dearer than the others."""
        place = len(self.labels)
        self.labels.append(label)
        if place == len(self._simple):
            room = max(16, 2 * place)
            more = np.empty((2, room, len(uses[0])))
            more[:, :place] = self._uses[:, :place] if place else 0.0
            self._uses, self._simple = more, np.resize(self._simple, room)
        self._uses[0, place], self._uses[1, place], self._simple[place] = *uses, is_simple
