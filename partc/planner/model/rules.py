"""`pin`, `ban` and `keep` of devices.yaml: absent times of the problem, and the rules to blame if no plan is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from partc.config.devices import ANSWER, DevicesConfig
from partc.config.placement import Range
from partc.errors import PlanError
from partc.planner.model.change import Times, with_times
from partc.planner.model.layers import Shape
from partc.planner.model.problem import Problem


@dataclass(frozen=True)
class Rule:
    """One pin or ban, or what the source keeps."""

    kind: str
    """pin | ban | keep."""
    device: str
    range: Range
    indices: frozenset[int]
    """The sub-modules of the range."""

    def __str__(self) -> str:
        """The rule in the form in which a user writes it."""
        return f"keep: {ANSWER}" if self.kind == "keep" else f"{self.kind}: {{{self.device}: {self.range}}}"

    def allows(self, index: int, device: str) -> bool:
        """Whether a sub-module may be on a device, as far as this rule goes."""
        return index not in self.indices or (device == self.device) == (self.kind != "ban")


def rules_of(devices: DevicesConfig, shape: Shape) -> tuple[Rule, ...]:
    """The pins and bans; and that the source holds what makes the answer, if it is to keep that.

    Raises:
        PlanError: a range is not of this model, or a pin contradicts another one, a ban or the source.
    """
    rules = tuple(
        Rule(kind, device, part, shape.indices(part))
        for kind, ranges in (("pin", devices.pin), ("ban", devices.ban))
        for device, parts in ranges.items()
        for part in parts
    )
    if devices.keep == ANSWER:
        answering = shape.answering
        last = Range("submodules", answering[0], answering[-1], devices.keep_place)
        rules = (*rules, Rule("keep", devices.source, last, frozenset(answering)))
    for rule in rules:
        if not rule.allows(0, devices.source):
            raise PlanError(
                f"`{rule}` takes sub-module 0 from the source {devices.source}, which must hold it",
                where=rule.range.where,
                hint="raw input never leaves the source; leave sub-module 0 out",
            )
        if rule.kind != "ban":
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

    def allowed(index: int, times: Times) -> Times:
        return {name: s for name, s in times.items() if all(rule.allows(index, name) for rule in rules)}

    return with_times(problem, allowed) if rules else problem


class Blame(NamedTuple):
    """The reason why there is no plan."""

    text: str
    rules: tuple[Rule, ...] = ()
    """The rules without which there would be one."""


def blame(
    problem: Problem, rules: Sequence[Rule], constraint: str, is_feasible: Callable[[Problem], bool]
) -> Blame:
    """The reason why there is no plan, with the pins and bans to blame; `problem` is without any of them.

    Solves once for each rule and once without any.
    """
    culprits = [rule for rule in rules if is_feasible(restrict(problem, [r for r in rules if r is not rule]))]
    if len(culprits) == 1:
        return Blame(f"without `{culprits[0]}` there would be a plan; with it: {constraint}", (*culprits,))
    if culprits:
        names = " or ".join(f"`{rule}`" for rule in culprits)
        return Blame(f"without {names} there would be a plan; with them: {constraint}", (*culprits,))
    if rules and is_feasible(problem):
        names = ", ".join(f"`{rule}`" for rule in rules)
        text = f"there would be a plan without the pins and bans ({names}); with them: {constraint}"
        return Blame(text, (*rules,))
    return Blame(constraint)
