"""`partition-graph`: decides which device gets which sub-modules. It decides only; `split-graph` cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from partc.config.devices import DeviceConfig, DevicesConfig, load_devices
from partc.errors import InternalError, PlanError, UserError
from partc.ir.costs import Step, workload
from partc.ir.graph import Module, PhaseCost, SubmoduleProfile
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.plan.evaluate import evaluate
from partc.plan.problem import Device, Edge, Link, Phase, Problem, Shared, Submodule
from partc.plan.strategies import solve

FORMAT = "partc-plan/1"
TOKEN_BYTES = 8
"""What the last device returns for each sequence of a step: one i64."""


@dataclass(frozen=True)
class PartitionGraph(Pass):
    """Plan the profiled sub-modules for the devices of a devices.yaml."""

    name: ClassVar[str] = "partition-graph"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "mapped"

    target: str = Default("devices.yaml")
    """Path of devices.yaml."""
    strategy: str = Default("optimal")
    """A name of `partc.plan.strategies`."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.plan`; raises PlanError if no plan meets the constraints."""
        before = module.plan
        problem = problem_of(module, load_devices(self.target))
        module.plan = plan_of(problem, self.strategy, where=self.target)
        return before != module.plan


def plan_of(problem: Problem, strategy: str, *, where: str | None = None) -> dict[str, object]:
    """plan.json as data: the problem, the answer, the predicted timeline.

    Raises:
        PlanError: nothing meets the constraints; the message says which one.
    """
    answer = solve(problem, strategy)
    if not answer.feasible or answer.assignment is None:
        raise PlanError(
            f"no plan fits: {answer.constraint}",
            where=where,
            hint="add a device or memory, lower max_sequence or max_requests, or raise memory_fraction",
        )
    predicted = evaluate(problem, answer.assignment)
    if not predicted.feasible:
        raise InternalError(f"strategy {strategy} breaks a constraint: {'; '.join(predicted.violations)}")
    return {
        "format": FORMAT,
        "problem": problem.to_json(),
        "answer": answer.to_json(),
        "predicted": predicted.to_json(),
    }


def problem_of(module: Module, devices: DevicesConfig) -> Problem:
    """The planning problem of a profiled module on these devices (DESIGN 11)."""
    profile, names = module.profile, sorted(devices.devices)
    if profile is None:
        raise UserError(
            "the sub-modules have no profile", where="partition-graph", hint="run profile-submodules before"
        )
    return Problem(
        objective=devices.objective,
        source=devices.source,
        devices=tuple(
            Device(name, devices.usable_memory(name), config.overhead_bytes)
            for name, config in devices.devices.items()
        ),
        submodules=_submodules(profile),
        links=tuple(
            Link(a, b, link.bandwidth_bytes_per_s, link.latency_s)
            for a in names
            for b in names
            if a != b and (link := devices.link(a, b)) is not None
        ),
        phases=tuple(_phase(module, profile, step, devices.devices) for step in workload(module.info)),
    )


def _submodules(profile: Sequence[SubmoduleProfile]) -> tuple[Submodule, ...]:
    """Memory of each; the planner knows one shared group per sub-module, so lesser ones count as its own."""
    users = Counter(name for item in profile for name in item.shared)
    return tuple(_submodule(item, users) for item in profile)


def _submodule(item: SubmoduleProfile, users: Mapping[str, int]) -> Submodule:
    own = item.weight_bytes + item.state_bytes
    peak = max(cost.peak_bytes for cost in item.phases.values())
    if not item.shared:
        return Submodule(own, {}, peak)
    name = max(item.shared, key=lambda key: (item.shared[key], users[key], key))
    rest = sum(item.shared.values()) - item.shared[name]
    return Submodule(own + rest, {}, peak, Shared(name, item.shared[name]))


def _phase(
    module: Module, profile: Sequence[SubmoduleProfile], step: Step, devices: Mapping[str, DeviceConfig]
) -> Phase:
    costs = [item.phases[step.name] for item in profile]
    return Phase(
        name=step.name,
        weight=_weight(module, step),
        time_s=tuple({name: seconds(cost, device) for name, device in devices.items()} for cost in costs),
        edges=_edges(module, step),
        return_bytes=_return_bytes(module, step),
    )


def _weight(module: Module, step: Step) -> float:
    """Steps of this phase for each generated token: one prefill makes the first, decodes make the others."""
    info = module.info
    if not info.has_states:
        return 1.0
    return 1 / info.generate if step.name == "prefill" else (info.generate - 1) / info.generate


def seconds(cost: PhaseCost, device: DeviceConfig) -> float:
    """The roofline: a sub-module takes as long as its arithmetic or as its memory traffic."""
    computing = cost.flops / device.flops_per_s
    moving = cost.read_bytes / device.memory_bandwidth_bytes_per_s
    return max(computing, moving) + device.call_overhead_s


def _edges(module: Module, step: Step) -> tuple[Edge, ...]:
    dependencies = {**(module.sdm or {}), **(module.rdm or {})}
    return tuple(
        Edge(source, target, value.bytes(step.sizes), value.name)
        for (source, target), values in sorted(dependencies.items())
        for value in values
    )


def _return_bytes(module: Module, step: Step) -> int:
    if module.info.has_states:
        return TOKEN_BYTES * step.sizes["batch"]
    return sum(value.bytes(step.sizes) for value in module.graph.outputs)
