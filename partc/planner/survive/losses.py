"""The losses that a ring survives: the plan after each, its price, and its words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from partc.config.units import format_bytes
from partc.errors import PlanError
from partc.format.placement import Stages, assignment_of
from partc.format.plan import Loss, Survival
from partc.planner.exact.optimal import is_feasible, seek_best, without_returns
from partc.planner.exact.solution import Solution, cost_of
from partc.planner.model.effort import QUESTION
from partc.planner.model.evaluate import evaluate
from partc.planner.model.infeasible import why_infeasible, without_storage_limits
from partc.planner.model.objective_values import say_value
from partc.planner.model.problem import Problem
from partc.planner.survive.copies import choose_copies, missing_storage
from partc.planner.survive.options import Holding, Option, Options, holding_of, options_without, within
from partc.planner.survive.words import loss_text

SameTokens = Callable[[str, str], bool]
"""Whether the second device computes just what the first one does."""
Explain = Callable[[str, str], str]
"""Called with a lost device and the constraint that cannot be met then; returns the reason in the user's terms."""
_ALONE = "no loss to survive: the source {} computes all sub-modules, and the ring ends with it"


def survive_one(
    problem: Problem,
    stages: Stages,
    same_tokens: SameTokens,
    where: str | None = None,
    *,
    reads: Mapping[str, float] = {},
    explain: Explain = lambda _, constraint: constraint,
) -> Survival:
    """The copies with the least disk by which the loss of any one device but the source is survived.

    For each loss, the plan is the best one that the disks allow then. A loss that no device could take, whatever lay
    on the disks, has its reason instead.

    Args:
        problem: with the weights of each sub-module on a disk.
        stages: the plan; storage holds it.
        same_tokens: of two devices, for what is promised.
        where: the file that errors name.
        reads: device → bytes per second at which it reads its disk, where that is known.
        explain: finds the reason of a loss that no device could take.

    Raises:
        PlanError: storage stands in the way; names the device, and what is missing.
    """
    own = holding_of(stages)
    every = [options_without(problem, name, own) for name in own if name != problem.source]
    reasons = {found.lost: _constraint(found) for found in every if not found.plans}
    if short := [lost for lost, constraint in reasons.items() if constraint is None]:
        raise _no_room(problem, own, short[0], where)
    possible = [found for found in every if found.plans]
    choice = choose_copies(problem, own, possible)
    if choice is None:
        raise _no_room(problem, own, " or ".join(found.lost for found in possible), where)
    best = {
        found.lost: _best(found.problem, choice.disks, option)
        for found, option in zip(possible, choice.options, strict=True)
    }
    copies = _copies(own, best.values())
    return Survival(
        losses=tuple(
            _survived(problem, own, found.lost, best[found.lost], same_tokens, reads)
            if found.lost in best
            else _fatal(found.lost, explain(found.lost, reasons[found.lost] or ""))
            for found in every
        ),
        copies={name: tuple(sorted(more)) for name, more in copies.items()},
        bytes=sum(_added(problem, own, name, more) for name, more in copies.items()),
        bound_bytes=choice.bound_bytes,
        text="" if every else _ALONE.format(problem.source),
    )


def _constraint(found: Options) -> str | None:
    """The constraint in the way of any plan after a loss; None where it is storage alone."""
    unlimited = without_storage_limits(found.problem)
    return None if is_feasible(unlimited) else why_infeasible(unlimited, is_feasible)


def _no_room(problem: Problem, own: Holding, lost: str, where: str | None) -> PlanError:
    more = " and ".join(
        f"{format_bytes(count)} more storage on {name}"
        for name, count in missing_storage(problem, own).items()
    )
    return PlanError(
        f"the loss of {lost} cannot be survived: the other disks have no room for copies of its weights; "
        f"{more} would do for every loss",
        where=where,
        hint="raise `storage` of a device, add a device, or write `survive: none`",
    )


def _best(left: Problem, disks: Holding, option: Option) -> Stages:
    """The best plan of the survivors over what lies on their disks; `option` is one."""
    solution: Solution | None = seek_best(without_returns(within(left, disks)), effort=QUESTION).solution
    if solution is None or cost_of(left, solution.value) > option.cost_s:
        return option.stages
    return solution.stages


def _copies(own: Holding, plans: Iterable[Stages]) -> dict[str, frozenset[int]]:
    """Device → what it runs after some loss and does not have in the plan."""
    found: dict[str, frozenset[int]] = {}
    for stages in plans:
        for name, indices in holding_of(stages).items():
            if more := indices - own.get(name, frozenset()):
                found[name] = found.get(name, frozenset()) | more
    return found


def _added(problem: Problem, own: Holding, name: str, more: frozenset[int]) -> float:
    """Bytes of copies beside what a device has; shared weights that are there count nothing."""
    have = own.get(name, frozenset())
    return problem.disk_of(have | more) - problem.disk_of(have)


def _survived(
    problem: Problem,
    own: Holding,
    lost: str,
    stages: Stages,
    same_tokens: SameTokens,
    reads: Mapping[str, float],
) -> Loss:
    evaluation = evaluate(problem, stages)
    assert evaluation.value is not None
    taken = _copies(own, [stages])
    disk = {name: _added(problem, own, name, more) for name, more in taken.items()}
    loading = {name: problem.disk_of(more) / reads[name] for name, more in taken.items() if name in reads}
    load_s = max(loading.values(), default=0.0) if loading.keys() == taken.keys() else None
    owner = {j: name for name, indices in own.items() for j in indices}
    keeps = all(
        same_tokens(owner[j], stage.device)
        for stage in stages
        for j in stage.indices
        if owner[j] != stage.device
    )
    return Loss(
        device=lost,
        assignment=assignment_of(stages),
        value=evaluation.value,
        bytes=disk,
        load_s=load_s,
        same_tokens=keeps,
        text=loss_text(
            lost,
            say_value(problem, evaluation.value),
            list(dict.fromkeys(stage.device for stage in stages)),
            disk,
            load_s,
            same_tokens=keeps,
        ),
        predicted=evaluation.predicted,
    )


def _fatal(lost: str, reason: str) -> Loss:
    return Loss(device=lost, constraint=reason, text=f"if {lost} is lost, nothing helps: {reason}")
