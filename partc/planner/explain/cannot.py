"""Facts of a ring that is planned, for the table of what it cannot do (`partc/format/capabilities.py`)."""

from __future__ import annotations

from partc.config.devices import DevicesConfig
from partc.format.capabilities import Facts
from partc.format.state_kinds import has_rows_alone, is_any_rewritten
from partc.format.tasks import generates
from partc.ir.graph import Module
from partc.pipeline.registry import load_target

ENGINE = "plan"
"""The engine that computes shared steps, as build.json names it."""


def planned_facts(module: Module, devices: DevicesConfig) -> Facts:
    """The facts of a module whose plan is decided; what a build alone knows is taken for granted."""
    assert module.plan is not None
    answer, info = module.plan.answer, module.info
    stages = answer.phases.get("decode") or next(iter(answer.phases.values()), None)
    ring = _ring(module)
    kinds = [state.kind for state in module.graph.states()]
    keeps = bool(info.start_tokens) or info.placeholder_token is not None
    engines = {name: _engine(devices, name) for name in ring}
    can_share = info.has_states and not info.uniform_positions and not keeps
    survives = [name for name in ring if name != devices.source] if devices.survive != "none" else []
    return Facts(
        source=devices.source,
        ring=ring,
        generates=generates(info.task),
        max_requests=info.max_requests,
        engines=engines,
        keeps=keeps,
        rewrites=is_any_rewritten(kinds),
        uniform=info.uniform_positions,
        step_requests=info.max_requests,
        reuses=has_rows_alone(kinds) and not keeps,
        drafts=info.drafts and has_rows_alone(kinds),
        step_tokens=2 if can_share and ENGINE in engines.values() else 1,
        groups=stages is not None,
        movable=devices.overlap > 0 or devices.survive != "none",
        survives=survives,
        limited=[name for name, device in devices.devices.items() if device.limits is not None],
    )


def _engine(devices: DevicesConfig, name: str) -> str:
    device = devices.devices[name]
    return ENGINE if load_target(device.target, device.target_options).shares_steps else device.target


def _ring(module: Module) -> list[str]:
    """The devices that the plan uses."""
    from partc.planner.explain.summary import summary_of

    assert module.plan is not None
    return list(dict.fromkeys(stage.device for stage in summary_of(module.plan, module.profile).stages))
