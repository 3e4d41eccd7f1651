"""`partition-graph`: the plan, by which each sub-module has a device. It decides only; `split-graph` cuts.

Where model.yaml says `max_batch: auto` it decides the batch, too: sub-modules are profiled and planned for each
candidate, and the smallest that makes nearly the most tokens per second becomes the model's max_batch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from msgspec import structs

from partc.config.devices import DevicesConfig, load_devices
from partc.errors import InternalError, PlanError, UserError
from partc.format.plan import Plan, PlanFile
from partc.ir.graph import ModelInfo, Module, SubmoduleProfile
from partc.ir.quantization import BLOCKWISE
from partc.ir.workload import Step, of_batch, workload
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass, load_target
from partc.pipeline.sharing import SHARING
from partc.planner.explain.remedies import model_remedy
from partc.planner.groups.evaluate import evaluate_plan
from partc.planner.model.draft_prices import drafts_of
from partc.planner.model.edges import edges_of, results_of
from partc.planner.model.layers import Shape, shape_of
from partc.planner.model.objective_values import tokens_per_s
from partc.planner.model.objectives import by_objective
from partc.planner.model.plan_file import plan_file
from partc.planner.model.problem import Device, Link, Phase, Problem, Shared, Submodule
from partc.planner.model.roofline import count_measured, hop_s, overheads, prices
from partc.planner.model.rules import blame, restrict, rules_of
from partc.planner.model.stale import advice
from partc.planner.model.unsupported import (
    Unsupported,
    check_pins,
    check_place,
    check_supported,
    idle,
    left_out,
    remedies,
    unsupported_of,
    without_unsupported,
)
from partc.planner.placed_by_user import check_strategy, plan_placed, stages_placed
from partc.planner.solve import solve, with_explanation
from partc.planner.survive.model import survival_of
from passes.profile_submodules import Stored, profile_submodules
from passes.shards.pricing import with_blocks

NEARLY = 0.98
"""A batch that makes this part of the most tokens per second is as good: it needs less memory and answers sooner."""


@dataclass(frozen=True)
class PartitionGraph(Pass):
    """Plan the profiled sub-modules for the devices of a devices.yaml."""

    name: ClassVar[str] = "partition-graph"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "mapped"

    devices: str = Default("devices.yaml")
    """Path of devices.yaml."""
    strategy: str = Default("optimal")
    """A name of `partc.planner.solve`."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.plan`; raises PlanError if no plan meets the constraints."""
        before = module.plan, module.info, module.profile
        devices = load_devices(self.devices)
        check_strategy(devices, self.strategy, self.devices)
        decision, notes = self._decide_at_last(module, devices)
        module.info, module.profile = decision.module.info, decision.module.profile
        module.plan = planned(decision, {**notes, **_notes(module, devices)})
        if devices.survive == "one":
            planner = partial(solve, strategy=self.strategy, explained=False)
            found = survival_of(
                module, decision.problem, decision.whole, devices, planner, where=self.devices
            )
            module.plan = structs.replace(module.plan, survival=found)
        return before != (module.plan, module.info, module.profile)

    def _decide_at_last(self, module: Module, devices: DevicesConfig) -> tuple[Decision, dict[str, object]]:
        """The decision; where no plan fits, that of the graph with all cuts, if there is one then."""
        try:
            return self._decide(module, devices)
        except NoPlanError as error:
            if not cut_everywhere(module, separated=self.strategy in SHARING):
                raise
            first = error
        try:
            decision, notes = self._decide(module, devices)
        except PlanError:
            raise first from None
        return decision, {**notes, "cuts": _CUT_NOTE}

    def _decide(self, module: Module, devices: DevicesConfig) -> tuple[Decision, dict[str, object]]:
        """The decision, and the batches that were tried where the batch was open."""
        if module.info.quantize is not None and module.profile is not None:
            module.profile = profile_on(devices, module.info, module)
        if not module.info.batches:
            return decide(module, devices, self.strategy, where=self.devices), {}
        decision, tried = choose_batch(module, devices, self.strategy, where=self.devices)
        return decision, {"batch": tried}


class NoPlanError(PlanError):
    """No plan fits the devices."""


_CUT_NOTE = "cut wherever values cross: with the cuts that few values cross no plan fits"
_CUT_EVERYWHERE = ("find-cuts{rule=all}", "form-submodules", "coarsen-submodules{rule=all}")


def cut_everywhere(module: Module, *, separated: bool) -> bool:
    """Divide a graph anew at all places, with maps and a profile; whether there are more sub-modules than before.

    Between two of the places that few values cross may lie more than any device has memory for: a network with skips
    over its whole depth has none inside.

    `separated`: no sub-module may have two blocks that devices can share.
    """
    before = len(module.submodules or ())
    further = ("separate-blocks",) if separated else ()
    steps = (*_CUT_EVERYWHERE, *further, "map-dependencies", "profile-submodules")
    run_passes(module, [load_pass(text) for text in steps])
    return len(module.submodules or ()) > before


@dataclass(frozen=True)
class Decision:
    """A problem and its plan."""

    module: Module
    problem: Problem
    whole: Problem
    """The problem without pins and bans."""
    answer: Plan
    """Without an explanation."""
    unsupported: Unsupported
    """The sub-modules that devices cannot run."""
    free: bool
    """Whether the planner chose the assignment as the best it knew."""


def decide(module: Module, devices: DevicesConfig, strategy: str, *, where: str | None = None) -> Decision:
    """The strategy's plan, or the user's, for a profiled module.

    Raises:
        PlanError: nothing meets the constraints; the message says which one, and which pin or ban.
    """
    shape = shape_of(module.submodules or ())
    rules = rules_of(devices, shape)
    unsupported = unsupported_of(module.submodules or (), devices)
    check_supported(unsupported, devices, shape, where)
    every = _whole_problem(module, devices)
    if strategy in SHARING:
        every = _with_blocks(every, module, devices, where)
    whole = without_unsupported(every, unsupported)
    problem = restrict(whole, rules)
    if devices.place:
        stages = stages_placed(devices, shape, rules)
        check_place(unsupported, devices, shape, stages)
        placed = plan_placed(problem, stages, shape, where)
        return Decision(module, problem, whole, placed, unsupported, free=False)
    check_pins(unsupported, rules, shape)
    answer = solve(problem, strategy, explained=False)
    if answer.constraint is not None and devices.returns == "auto" and problem.returns is not None:
        whole, problem = replace(whole, returns=None), replace(problem, returns=None)
        answer = solve(problem, strategy, explained=False)
    if answer.constraint is not None:
        said = blame(whole, rules, _with_layers(answer.constraint, shape), partial(_is_feasible, strategy))
        text, hint = said.text, model_remedy(module.info, module.profile or (), devices, answer.constraint)
        if problem.returns is not None and _is_feasible(strategy, replace(problem, returns=None)):
            hint = "write `returns: any`: a plan that returns to a device fits"
        if any(rule.kind != "keep" for rule in said.rules):
            hint = "remove or change that pin or ban"
        if unsupported and _is_feasible(strategy, restrict(every, rules)):
            text, hint = f"{text}; {left_out(unsupported, shape)}", remedies(unsupported)
        if strategy != "optimal" and _is_feasible("optimal", problem):
            hint = f"{strategy} finds no plan, though there is one: use --strategy optimal"
        raise NoPlanError(f"no plan fits: {text}", where=where, hint=hint)
    return Decision(module, problem, whole, answer, unsupported, free=strategy == "optimal")


def _with_blocks(problem: Problem, module: Module, devices: DevicesConfig, where: str | None) -> Problem:
    """The problem with the blocks that devices may share.

    Raises:
        PlanError: there are none.
    """
    source = devices.devices[devices.source]
    found = with_blocks(problem, module.info, module.graph, module.submodules or (), source, _stored(devices))
    if not any(part.block for part in found.submodules):
        raise PlanError(
            "no block can be shared: an attention or MLP between products with weights",
            where=where,
            hint=_unshared_hint(module),
        )
    return found


def _unshared_hint(module: Module) -> str:
    wanted = module.info.quantize
    if wanted is not None and wanted.weights in BLOCKWISE:
        together = f"{wanted.block} columns of {wanted.weights} have one scale and stay together"
        return f"{together}: write a lesser `block` in `quantize`, or int8"
    return "leave --strategy out"


def _with_layers(constraint: str, shape: Shape) -> str:
    """A constraint that names the layer of each sub-module, which is what users know."""
    layers = shape.layers
    if layers is None:
        return constraint
    return re.sub(
        r"sub-module (\d+)", lambda found: f"{found[0]} (layer {layers[int(found[1])][0]})", constraint
    )


def _is_feasible(strategy: str, problem: Problem) -> bool:
    return solve(problem, strategy, explained=False).feasible


def choose_batch(
    module: Module, devices: DevicesConfig, strategy: str, *, where: str | None = None
) -> tuple[Decision, list[dict[str, object]]]:
    """The decision for the smallest batch that makes nearly the most tokens per second; and what was tried.

    Tokens per second are batch x steps/s for the objective throughput, batch / latency for latency. A batch needs
    more memory than every smaller one, so that the powers of two end with the first that does not fit; then the
    numbers above the best of them are halved. One profile, O(V + E), and one solve for each.

    Raises:
        PlanError: not even the first fits.
    """
    first, *others = module.info.batches
    tried: dict[int, Decision | None] = {
        first: decide(_of_batch(module, first, devices), devices, strategy, where=where)
    }

    def rate(batch: int) -> float:
        if batch not in tried:
            try:
                tried[batch] = decide(_of_batch(module, batch, devices), devices, strategy, where=where)
            except PlanError:
                tried[batch] = None
        decision = tried[batch]
        return 0.0 if decision is None else tokens_per_s(decision.problem, decision.answer.value or 0.0)

    for batch in others:
        if not rate(batch):
            break
    best = max(tried, key=rate)
    step = best // 2
    while step:
        if best + step <= module.info.batches[-1] and rate(best + step) > rate(best):
            best += step
        step //= 2
    decisions = {batch: tried[batch] for batch in sorted(tried)}
    chosen = next(one for batch, one in decisions.items() if one and rate(batch) >= NEARLY * rate(best))
    return chosen, [_attempt(batch, one, rate(batch)) for batch, one in decisions.items()]


def _attempt(batch: int, decision: Decision | None, rate: float) -> dict[str, object]:
    """A row of the batches tried, for plan.json."""
    if decision is None:
        return {"batch": batch, "value": None, "tokens_per_s": None, "feasible": False}
    return {"batch": batch, "value": decision.answer.value, "tokens_per_s": rate, "feasible": True}


def _of_batch(module: Module, batch: int, devices: DevicesConfig) -> Module:
    """The module with that batch decided, profiled anew."""
    info = of_batch(module.info, batch)
    return replace(module, info=info, profile=profile_on(devices, info, module))


def profile_on(devices: DevicesConfig, info: ModelInfo, module: Module) -> list[SubmoduleProfile]:
    """The profile with weights as the targets of these devices store them.

    Where they differ the largest size counts: the problem knows one for all devices.
    """
    return profile_submodules(info, module.graph, module.submodules or (), _stored(devices))


def _stored(devices: DevicesConfig) -> Stored:
    """The bytes of a weight as the targets store it, the largest of all."""
    targets = [load_target(device.target, device.target_options) for device in devices.devices.values()]
    return lambda weight: max(target.stored_bytes(weight) for target in targets)


def _notes(module: Module, devices: DevicesConfig) -> dict[str, object]:
    """What the explanation says besides: of measured times, and of settings that devices.yaml leaves open."""
    chosen = {name: device.chosen for name, device in devices.devices.items() if device.chosen}
    return {**_measured(module, devices), **({"chosen": chosen} if chosen else {})}


def _measured(module: Module, devices: DevicesConfig) -> dict[str, object]:
    """Notes on measured times, where devices.yaml names such: their number, and the overheads beside them."""
    if devices.measured is None:
        return {}
    counts = count_measured(module.submodules or (), workload(module.info), devices)
    said = advice(module, devices, counts["measured"], counts["of"])
    return {"times": {**counts, "overheads": overheads(devices), "advice": said}}


def planned(decision: Decision, notes: Mapping[str, object] | None = None) -> PlanFile:
    """plan.json: the problem, the answer with its explanation and `notes`, the predicted timeline."""
    problem = decision.problem
    answer = with_explanation(problem, decision.answer, free=decision.free)
    predicted = evaluate_plan(problem, answer)
    if not predicted.feasible:
        raise InternalError(f"{answer.method} breaks a constraint: {'; '.join(predicted.violations)}")
    explain = {**answer.explain, **_why_unused(decision, answer), **(notes or {})}
    made = plan_file(problem, structs.replace(answer, explain=explain), predicted)
    return structs.replace(made, layers=shape_of(decision.module.submodules or ()).layers)


def _why_unused(decision: Decision, answer: Plan) -> dict[str, object]:
    """`unused` of the explanation, with the operator that keeps a device from all sub-modules; empty without any."""
    unused = answer.explain.get("unused")
    reasons = idle(decision.unsupported, shape_of(decision.module.submodules or ()))
    if not isinstance(unused, dict) or not reasons:
        return {}
    return {"unused": {name: reasons.get(name, text) for name, text in unused.items()}}


def problem_of(module: Module, devices: DevicesConfig) -> Problem:
    """The planning problem of a profiled module on these devices.

    Devices have no times for sub-modules that their targets lack, and that pins and bans keep from them.
    """
    submodules = module.submodules or ()
    able = without_unsupported(_whole_problem(module, devices), unsupported_of(submodules, devices))
    return restrict(able, rules_of(devices, shape_of(submodules)))


def _whole_problem(module: Module, devices: DevicesConfig) -> Problem:
    """The planning problem, as if every device could run every sub-module."""
    profile, names = module.profile, sorted(devices.devices)
    if profile is None:
        raise UserError(
            "the sub-modules have no profile", where="partition-graph", hint="run profile-submodules before"
        )
    return Problem(
        objective=devices.objective,
        source=devices.source,
        devices=tuple(
            Device(name, devices.usable_memory(name), config.overhead_bytes, config.storage_bytes)
            for name, config in devices.devices.items()
        ),
        submodules=_submodules(profile, _widened(module, devices), on_disk=_asks_for_disk(devices)),
        links=tuple(
            Link(a, b, link.bandwidth_bytes_per_s, link.latency_s + hop_s(devices, b))
            for a in names
            for b in names
            if a != b and (link := devices.link(a, b)) is not None
        ),
        phases=tuple(_phase(module, profile, step, devices) for step in workload(module.info)),
        batch=module.info.batch or 1,
        returns=_returns(module.info, devices),
        drafts=drafts_of(module, devices),
    )


def _returns(info: ModelInfo, devices: DevicesConfig) -> int | None:
    match devices.returns:
        case "auto":
            # With guesses, too, a device that is returned to is busy twice in a step, and has others waiting.
            return by_objective(devices.objective, latency=0 if info.drafted else None, throughput=0)
        case "any":
            return None
        case int() as most:
            return most


def _asks_for_disk(devices: DevicesConfig) -> bool:
    """Whether plans depend on what lies on disks."""
    limited = any(device.storage_bytes is not None for device in devices.devices.values())
    return limited or devices.survive != "none" or devices.overlap > 0


def _widened(module: Module, devices: DevicesConfig) -> frozenset[str]:
    """What takes the memory of float32 in half precision on any of the devices; the problem knows one size for all."""
    targets = (load_target(device.target, device.target_options) for device in devices.devices.values())
    return frozenset().union(*(target.widened(module.info.dtype) for target in targets))


def _submodules(
    profile: Sequence[SubmoduleProfile], widened: frozenset[str], *, on_disk: bool
) -> tuple[Submodule, ...]:
    """Memory and disk of each; the planner knows one shared group per sub-module, so lesser ones count as its own."""
    users = Counter(name for item in profile for name in item.shared)
    return tuple(_submodule(item, users, widened, on_disk) for item in profile)


def _submodule(
    item: SubmoduleProfile, users: Mapping[str, int], widened: frozenset[str], on_disk: bool
) -> Submodule:
    own = item.weight_bytes + item.state_bytes + (item.half_bytes if "weights" in widened else 0)
    peak = max(cost.peak_bytes for cost in item.phases.values()) * (2 if "activations" in widened else 1)
    name = max(item.shared, key=lambda key: (item.shared[key], users[key], key), default="")
    shared = Shared(name, item.shared[name]) if name else None
    rest = sum(item.shared.values()) - (shared.bytes if shared else 0)
    return Submodule(own + rest, {}, peak, shared, item.weight_bytes + rest if on_disk else 0)


def _phase(module: Module, profile: Sequence[SubmoduleProfile], step: Step, devices: DevicesConfig) -> Phase:
    costs = [item.phases[step.name] for item in profile]
    return_bytes, results = results_of(module, step)
    return Phase(
        name=step.name,
        weight=_weight(module, step),
        time_s=prices(module.submodules or (), costs, step, devices),
        edges=edges_of(module, step),
        return_bytes=return_bytes,
        results=results,
    )


def _weight(module: Module, step: Step) -> float:
    """Steps of this phase for each generated token: one prefill makes the first, decodes make the others."""
    info = module.info
    if not info.has_states:
        return 1.0
    return 1 / info.generate if step.name == "prefill" else (info.generate - 1) / info.generate
