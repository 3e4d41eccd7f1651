"""The losses that the plan of a model survives, on the devices of a devices.yaml."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from partc.config.devices import DeviceConfig, DevicesConfig
from partc.format.plan import Plan, Survival
from partc.format.state_kinds import is_any_rewritten, is_rewritten
from partc.ir.graph import ModelInfo, Module, State, Submodule
from partc.ir.once import once_nodes
from partc.ir.workload import workload
from partc.planner.exact.optimal import is_feasible, plan_optimal, without_returns
from partc.planner.model.change import with_devices
from partc.planner.model.infeasible import why_infeasible, without_storage_limits
from partc.planner.model.layers import shape_of
from partc.planner.model.problem import Problem
from partc.planner.model.rules import Rule, blame, rules_of
from partc.planner.survive.groups import Planner, survive_in_groups
from partc.planner.survive.losses import survive_one
from partc.planner.survive.mirrors import Rows, choose_mirrors

_ROWS_AXIS = 2
"""States are [batch, heads, positions, size]."""


def survival_of(
    module: Module,
    problem: Problem,
    whole: Problem,
    devices: DevicesConfig,
    planner: Planner,
    *,
    where: str | None = None,
) -> Survival:
    """The losses of single devices that the plan of `module` survives, with copies and mirrored rows.

    Args:
        module: planned.
        problem: its planning problem.
        whole: the same without pins and bans.
        devices: where it is to run.
        planner: made the plan; where devices share stages, it also plans those that are left.
        where: the file that errors name.

    Raises:
        PlanError: a loss is not survived for lack of storage, or rows cannot be mirrored as asked.
    """
    assert module.plan is not None

    def same_tokens(old: str, new: str) -> bool:
        return _way(devices.devices[old]) == _way(devices.devices[new])

    known = ((name, device.storage_bandwidth_bytes_per_s) for name, device in devices.devices.items())
    reads = {name: speed for name, speed in known if speed is not None}
    if phases := module.plan.answer.phases:
        return survive_in_groups(problem, phases, [planner, _of_one_device_each], where, reads=reads)
    rules = rules_of(devices, shape_of(module.submodules or ()))

    def explain(lost: str, constraint: str) -> str:
        left = with_devices(whole, [name for name in whole.device_of if name != lost])
        return _reason(without_storage_limits(left), rules, constraint)

    stages = module.plan.stages
    found = survive_one(problem, stages, same_tokens, where, reads=reads, explain=explain)
    keeps = bool(once_nodes(module.graph))
    rows = [_rows(module.info, part, keeps=keeps) for part in module.submodules or ()]
    mirrors = choose_mirrors(problem, stages, found.losses, rows, devices.mirror, where)
    return replace(found, mirrors=mirrors)


def _of_one_device_each(problem: Problem) -> Plan:
    """The best plan whose stages have one device each."""
    return plan_optimal(without_returns(problem))


def _reason(left: Problem, rules: Sequence[Rule], constraint: str) -> str:
    """The reason why survivors have no plan: a pin or a ban, or what is in the way without any, too."""
    if not rules:
        return constraint
    said = blame(left, rules, constraint, lambda problem: bool(is_feasible(problem)))
    return said.text if said.rules else why_infeasible(left, is_feasible)


def _way(device: DeviceConfig) -> tuple[object, ...]:
    """The way in which a device computes: equal ones give equal bits."""
    return device.target, device.arch, device.provider, device.threads, dict(device.options)


def _rows(info: ModelInfo, submodule: Submodule, *, keeps: bool) -> Rows:
    """The caches of a sub-module."""
    states = {value for node in submodule.nodes for value in node.operands if isinstance(value, State)}
    step, largest = workload(info)[-1].sizes, {**info.dims, "batch": info.max_batch}
    return Rows(
        token_bytes=sum(
            state.bytes(step) / _tokens_in(state) for state in states if not is_rewritten(state.kind)
        ),
        all_bytes=sum(state.bytes(largest) for state in states) * info.max_requests,
        begins_again=keeps or is_any_rewritten(state.kind for state in states),
    )


def _tokens_in(state: State) -> int:
    """The number of tokens that a cache has room for."""
    positions = (state.shape or ())[_ROWS_AXIS]
    return positions if isinstance(positions, int) else 1
