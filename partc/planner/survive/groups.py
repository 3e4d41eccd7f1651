"""The losses that a plan survives in which devices share stages: those that are left form stages anew.

A share of a block is of use to its own device alone, so a survivor has everything that it runs after a loss on its disk
besides its share, and loads it beside the share, which it gives up when all have loaded. Caches lie in other shares
then: requests are computed again from their first tokens, with the tokens that were told; sums come in another order,
so that what follows may differ where two tokens are about as likely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from partc.errors import PlanError
from partc.format.plan import Loss, Plan, SharedStage, SharedStages, Survival
from partc.planner.exact.solution import cost_of
from partc.planner.groups.evaluate import evaluate_shared
from partc.planner.groups.members import disk_use, kept_bytes
from partc.planner.model.change import with_devices
from partc.planner.model.infeasible import without_storage_limits
from partc.planner.model.objective_values import say_value
from partc.planner.model.problem import Device, Problem
from partc.planner.model.stages import devices_in
from partc.planner.survive.words import loss_text

Phases = Mapping[str, SharedStages]
Planner = Callable[[Problem], Plan]
"""Plans the devices that are left."""


def survive_in_groups(
    problem: Problem,
    phases: Phases,
    planners: Sequence[Planner],
    where: str | None = None,
    *,
    reads: Mapping[str, float] = {},
) -> Survival:
    """The plan of those that are left after each loss but the source's, and what it takes on their disks.

    Losses are planned one after the other, each with the storage that those before it leave. A plan for an earlier loss
    that does without this device, too, takes no more: it counts where it is as good, and where storage lacks.

    Args:
        problem: with the weights of each sub-module on a disk.
        phases: phase → the stages of the plan.
        planners: the best plan of any of them counts.
        where: the file that errors name.
        reads: device → bytes per second at which it reads its disk, where that is known.

    Raises:
        PlanError: a loss could be survived if there were more storage.
    """
    taken = dict(disk_use(problem, phases))
    losses, total = list[Loss](), 0.0
    for lost in devices_in(phases):
        if lost == problem.source:
            continue
        left = _left(problem, phases, lost, taken)
        earlier = _earlier(problem, lost, losses)
        loss = _loss(problem, left, lost, planners, where, reads, earlier)
        losses.append(loss)
        total += sum(loss.bytes.values())
        for name, count in loss.bytes.items():
            taken[name] = taken.get(name, 0.0) + count
    return Survival(losses=tuple(losses), bytes=total)


def _earlier(problem: Problem, lost: str, losses: Sequence[Loss]) -> Loss | None:
    """The loss with the best plan of an earlier one that does without the device."""
    fitting = [loss for loss in losses if loss.value is not None and lost not in devices_in(loss.phases)]
    if not fitting:
        return None
    best = min(fitting, key=lambda loss: cost_of(problem, loss.value or 0.0))
    value, names = say_value(problem, best.value or 0.0), sorted(devices_in(best.phases))
    text = loss_text(lost, value, names, {}, best.load_s, same_tokens=False)
    return structs.replace(best, device=lost, bytes={}, text=text)


def _left(problem: Problem, phases: Phases, lost: str, taken: Mapping[str, float]) -> Problem:
    """The problem of those that are left, with the memory and the storage that the plan leaves."""
    kept = kept_bytes(problem, phases)

    def room(device: Device) -> Device:
        memory = device.memory_bytes - kept.get(device.name, 0.0)
        storage = device.storage_bytes
        free = None if storage is None else max(0.0, storage - taken.get(device.name, 0.0))
        return replace(device, memory_bytes=max(0.0, memory), storage_bytes=free)

    left = with_devices(problem, [name for name in problem.device_of if name != lost])
    return replace(left, devices=tuple(map(room, left.devices)))


def _loss(
    problem: Problem,
    left: Problem,
    lost: str,
    planners: Sequence[Planner],
    where: str | None,
    reads: Mapping[str, float],
    earlier: Loss | None,
) -> Loss:
    """The loss with a plan of its own, or with an earlier one that is as good."""
    found = _best(left, planners)
    if earlier is not None and earlier.value is not None:
        limit = cost_of(problem, earlier.value)
        if found.value is None or limit <= cost_of(problem, found.value):
            return earlier
    if found.value is None:
        if _best(without_storage_limits(left), planners).value is not None:
            message = f"the loss of {lost} cannot be survived: the other disks have no room for its work"
            hint = "raise `storage` of a device, or write `survive: none`"
            raise PlanError(message, where=where, hint=hint)
        reason = f"{found.constraint}, beside their shares, which they give up when all have loaded"
        return Loss(device=lost, constraint=reason, text=f"if {lost} is lost, nothing helps: {reason}")
    phases = _phases(left, found)
    evaluation = evaluate_shared(left, phases)
    assert evaluation.value is not None
    disk = dict(disk_use(left, phases))
    known = [count / reads[name] for name, count in disk.items() if name in reads]
    load_s = max(known) if len(known) == len(disk) else None
    value = say_value(problem, evaluation.value)
    return Loss(
        device=lost,
        phases=phases,
        value=evaluation.value,
        bytes=disk,
        load_s=load_s,
        text=loss_text(lost, value, devices_in(phases), disk, load_s, same_tokens=False),
        predicted=evaluation.predicted,
    )


def _best(problem: Problem, planners: Sequence[Planner]) -> Plan:
    """The best of their plans, or the reason of the last one that has none."""
    plans = [planner(problem) for planner in planners]
    feasible = [plan for plan in plans if plan.value is not None]
    return min(feasible, key=lambda plan: cost_of(problem, plan.value or 0.0), default=plans[-1])


def _phases(problem: Problem, plan: Plan) -> dict[str, SharedStages]:
    """The stages of a plan by phase, also where each has one device."""
    if plan.phases:
        return dict(plan.phases)
    stages = tuple(SharedStage(stage.submodules, stage.devices) for stage in plan.stages or ())
    return dict.fromkeys((step.name for step in problem.steps), stages)
