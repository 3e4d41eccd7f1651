"""What `place`, `pin` and `ban` of devices.yaml mean for the sub-modules of a model.

The layers of a sub-module are read off the scopes of its nodes: the first number in `model.layers.7.mlp` is the
layer. A sub-module without any goes with the nearest one that has some: what comes before the first layer (the
embedding) with the first, what comes after the last (the head) with the last. A graph without scopes has
sub-modules only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from partc.config.devices import DevicesConfig
from partc.config.placement import Range, Ranges
from partc.errors import PlanError
from partc.ir.graph import Submodule
from partc.plan.problem import Problem
from partc.plan.strategies import load_strategy

Span = tuple[int, int]
"""First and last, inclusive."""


@dataclass(frozen=True)
class Rule:
    """One pin or ban."""

    kind: str
    """pin | ban."""
    device: str
    range: Range
    indices: frozenset[int]
    """The sub-modules that it is about."""

    def __str__(self) -> str:
        """As a user writes it."""
        return f"{self.kind}: {{{self.device}: {self.range}}}"

    def allows(self, index: int, device: str) -> bool:
        """Whether a sub-module may be on a device, as far as this rule goes."""
        return index not in self.indices or (device == self.device) == (self.kind == "pin")


@dataclass(frozen=True)
class Shape:
    """The sub-modules of a model, and the layers in each."""

    count: int
    layers: tuple[Span, ...] | None
    """Of every sub-module; None where layers cannot be told."""

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
                hint=f"the sub-modules are 0-{self.count - 1}; --print-after coarsen-submodules shows them",
            )
        return frozenset(range(wanted.first, wanted.last + 1))

    def _of_layers(self, wanted: Range) -> frozenset[int]:
        if self.layers is None:
            raise PlanError(
                "the layers of this model cannot be told",
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
        """Where a range of layers may end."""
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
    own = [_layers(submodule) for submodule in submodules]
    known = [span for span in own if span is not None]
    if not known or any(a[0] > b[0] or a[1] > b[0] for a, b in pairwise(known)):
        return Shape(len(own), None)
    filled: list[Span] = []
    for span in own:
        end = filled[-1][1] if filled else known[0][0]
        filled.append(span or (end, end))
    return Shape(len(own), tuple(filled))


def _layers(submodule: Submodule) -> Span | None:
    numbers = [
        next(int(part) for part in node.scope.split(".") if part.isdecimal())
        for node in submodule.nodes
        if any(part.isdecimal() for part in node.scope.split("."))
    ]
    return (min(numbers), max(numbers)) if numbers else None


def check_strategy(devices: DevicesConfig, strategy: str) -> None:
    """Refuses a strategy where the user has placed the layers; cheap, so that compile asks it first.

    Raises:
        PlanError: both are given, or there is no such strategy.
    """
    load_strategy(strategy)
    if devices.place and strategy != "optimal":
        raise PlanError(
            f"devices.yaml places the layers: there is nothing left for --strategy {strategy} to decide",
            where=next(part.where for parts in devices.place.values() for part in parts),
            hint="remove `place`, or leave --strategy out",
        )


def rules_of(devices: DevicesConfig, shape: Shape) -> tuple[Rule, ...]:
    """The pins and bans.

    Raises:
        PlanError: a range is not of this model, or a pin contradicts another one, a ban or the source.
    """
    rules = tuple(
        Rule(kind, device, part, shape.indices(part))
        for kind, ranges in (("pin", devices.pin), ("ban", devices.ban))
        for device, parts in ranges.items()
        for part in parts
    )
    for rule in rules:
        if not rule.allows(0, devices.source):
            raise PlanError(
                f"`{rule}` takes sub-module 0 from the source {devices.source}, which must hold it",
                where=rule.range.where,
                hint="raw input never leaves the source; leave sub-module 0 out",
            )
        if rule.kind == "pin":
            _check_pin(rule, rules, shape)
    return rules


def _check_pin(pin: Rule, rules: Iterable[Rule], shape: Shape) -> None:
    for other in rules:
        against = [j for j in sorted(pin.indices) if not other.allows(j, pin.device)]
        if against:
            raise PlanError(
                f"`{pin}` and `{other}` contradict each other over {shape.describe(against)}",
                where=pin.range.where,
                hint="remove one of the two",
            )


def restrict(problem: Problem, rules: Sequence[Rule]) -> Problem:
    """The problem in which devices have no time for sub-modules that the rules keep from them."""

    def allowed(index: int, times: Mapping[str, float]) -> dict[str, float]:
        return {name: s for name, s in times.items() if all(rule.allows(index, name) for rule in rules)}

    if not rules:
        return problem
    submodules = tuple(
        replace(part, time_s=allowed(j, part.time_s)) for j, part in enumerate(problem.submodules)
    )
    phases = tuple(
        replace(phase, time_s=tuple(allowed(j, times) for j, times in enumerate(phase.time_s)))
        for phase in problem.phases
    )
    return replace(problem, submodules=submodules, phases=phases)


def placed(devices: DevicesConfig, shape: Shape, rules: Iterable[Rule]) -> tuple[str, ...]:
    """The device of every sub-module, by the user's `place`; a device may be returned to.

    Raises:
        PlanError: a range is not of this model, a sub-module has no place or two, or a place breaks a rule.
    """
    holder = _holders(devices.place, shape)
    where = next(part.where for parts in devices.place.values() for part in parts)
    if missing := [j for j in range(shape.count) if j not in holder]:
        raise PlanError(
            f"`place` gives {shape.describe(missing)} to no device",
            where=where,
            hint=f"place {shape.describe(missing)}, too, or remove `place` and let partc decide",
        )
    if holder[0] != devices.source:
        raise PlanError(
            f"`place` gives sub-module 0 to {holder[0]}, but the source {devices.source} must hold it",
            where=where,
            hint=f"raw input never leaves the source: place the first layers on {devices.source}",
        )
    for rule in rules:
        if against := [j for j in sorted(rule.indices) if not rule.allows(j, holder[j])]:
            raise PlanError(
                f"`place` gives {shape.describe(against)} to {holder[against[0]]} against `{rule}`",
                where=rule.range.where,
                hint="remove one of the two",
            )
    return tuple(holder[j] for j in range(shape.count))


def _holders(place: Ranges, shape: Shape) -> dict[int, str]:
    holder: dict[int, str] = {}
    for device, parts in place.items():
        for part in parts:
            indices = shape.indices(part)
            if twice := sorted(indices & holder.keys()):
                raise PlanError(
                    f"`place` gives {shape.describe(twice)} to {holder[twice[0]]} and to {device}",
                    where=part.where,
                    hint="every layer has one device",
                )
            holder |= dict.fromkeys(indices, device)
    return holder


def spans_of(indices: Iterable[int]) -> list[Span]:
    """Runs of consecutive numbers."""
    spans: list[Span] = []
    for j in sorted(indices):
        if spans and spans[-1][1] == j - 1:
            spans[-1] = (spans[-1][0], j)
        else:
            spans.append((j, j))
    return spans


def blame(
    problem: Problem, rules: Sequence[Rule], constraint: str, is_feasible: Callable[[Problem], bool]
) -> str:
    """Why there is no plan, with the pins and bans that keep it from being; `problem` is without any of them.

    Solves once for each rule and once without any.
    """
    culprits = [rule for rule in rules if is_feasible(restrict(problem, [r for r in rules if r is not rule]))]
    if len(culprits) == 1:
        return f"without `{culprits[0]}` there would be a plan; with it: {constraint}"
    if culprits:
        names = " or ".join(f"`{rule}`" for rule in culprits)
        return f"without {names} there would be a plan; with them: {constraint}"
    if rules and is_feasible(problem):
        names = ", ".join(f"`{rule}`" for rule in rules)
        return f"there would be a plan without the pins and bans ({names}); with them: {constraint}"
    return constraint
