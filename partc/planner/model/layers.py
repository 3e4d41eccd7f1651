"""The sub-modules of a model by the numbers of their layers, as users name them.

The layers of a sub-module are read off the scopes of its nodes: the first number in `model.layers.7.mlp` is the
layer. A sub-module without any goes with the nearest one that has some: what comes before the first layer (the
embedding) with the first, what comes after the last (the head) with the last. A graph without scopes has
sub-modules only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from partc.config.placement import Range
from partc.errors import PlanError

if TYPE_CHECKING:
    from partc.ir.graph import Submodule

Span = tuple[int, int]
"""First and last, inclusive."""


@dataclass(frozen=True)
class Shape:
    """The sub-modules of a model, and the layers in each."""

    count: int
    layers: tuple[Span, ...] | None
    """The layers of every sub-module; None where they cannot be told."""
    answer: int = -1
    """The sub-module that makes the answer, with those behind it: the last one with weights. Below 0 from the end."""

    @property
    def answering(self) -> range:
        """The sub-modules whose results tell the answer."""
        return range(self.answer % self.count, self.count)

    def indices(self, wanted: Range) -> frozenset[int]:
        """The sub-modules of a range.

        Raises:
            PlanError: there are none such, or the range ends inside a sub-module.
        """
        if wanted.kind == "layers":
            return self._of_layers(wanted)
        if wanted.last >= self.count:
            raise PlanError(
                f"there is no sub-module {wanted.last}",
                where=wanted.where,
                hint=f"the sub-modules are 0-{self.count - 1}; partc plan --print-after coarsen-submodules shows them",
            )
        return frozenset(range(wanted.first, wanted.last + 1))

    def _of_layers(self, wanted: Range) -> frozenset[int]:
        if self.layers is None:
            raise PlanError(
                "the layers of this model are not known",
                where=wanted.where,
                hint=f"use sub-modules: `submodules 0-{self.count - 1}` are all of them",
            )
        first, last = self.layers[0][0], self.layers[-1][1]
        if wanted.first < first or wanted.last > last:
            raise PlanError(
                f"there is no layer {wanted.last if wanted.last > last else wanted.first}",
                where=wanted.where,
                hint=f"the layers of this model are {first}-{last}",
            )
        for low, high in self.layers:
            for edge in (wanted.first, wanted.last + 1):
                if low < edge <= high:
                    raise PlanError(
                        f"layers {edge - 1} and {edge} lie in one sub-module: no cut is between them",
                        where=wanted.where,
                        hint=self._boundaries(),
                    )
        return frozenset(
            j for j, (low, high) in enumerate(self.layers) if wanted.first <= low and high <= wanted.last
        )

    def _boundaries(self) -> str:
        """The layers after which a range may end."""
        assert self.layers is not None
        ends = [str(left[1]) for left, right in pairwise(self.layers) if left[1] < right[0]]
        return f"a range may end after these layers: {', '.join([*ends, str(self.layers[-1][1])])}"

    def describe(self, indices: Collection[int]) -> str:
        """Sub-modules by their layers where these say it, else by number: `layers 4-7`."""
        spans = spans_of(indices)
        if self.layers is not None:
            layers = self.layers
            layered = [Range("layers", layers[a][0], layers[b][1], "") for a, b in spans]
            if all(self._is_whole(part, span) for part, span in zip(layered, spans, strict=True)):
                return ", ".join(map(str, layered))
        return ", ".join(str(Range("submodules", a, b, "")) for a, b in spans)

    def _is_whole(self, layers: Range, span: Span) -> bool:
        """Whether a span of sub-modules is just these layers."""
        try:
            return self._of_layers(layers) == frozenset(range(span[0], span[1] + 1))
        except PlanError:
            return False


def shape_of(submodules: Sequence[Submodule]) -> Shape:
    """The layers of every sub-module, those without any filled in; O(nodes)."""
    own = [layers_in(submodule) for submodule in submodules]
    known = [span for span in own if span is not None]
    answer = max((part.index for part in submodules if part.has_weights), default=-1)
    if not known or any(a[0] > b[0] or a[1] > b[0] for a, b in pairwise(known)):
        return Shape(len(own), None, answer)
    filled: list[Span] = []
    for span in own:
        end = filled[-1][1] if filled else known[0][0]
        filled.append(span or (end, end))
    return Shape(len(own), tuple(filled), answer)


def layers_in(submodule: Submodule) -> Span | None:
    """The first and the last layer that the scopes of its nodes name; None where they name none. O(nodes)."""
    numbers = [
        next(int(part) for part in node.scope.split(".") if part.isdecimal())
        for node in submodule.nodes
        if any(part.isdecimal() for part in node.scope.split("."))
    ]
    return (min(numbers), max(numbers)) if numbers else None


def spans_of(indices: Iterable[int]) -> list[Span]:
    """Runs of consecutive numbers."""
    spans: list[Span] = []
    for j in sorted(indices):
        if spans and spans[-1][1] == j - 1:
            spans[-1] = (spans[-1][0], j)
        else:
            spans.append((j, j))
    return spans
