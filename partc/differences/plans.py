"""Two plans: devices, cuts, messages, memory, times. They are compared in a short form that people can read.

```yaml
objective: latency
method: dynamic programming
stages: [{device: phone, layers: 0-4, submodules: 0-9}, …]     # by phase, where phases have other stages
messages: [{from: phone, to: old, kind: sequential, values: [model.layers.4.add], bytes: {prefill: 16384, decode: 512}}]
memory: {phone: {needed: 10687872, available: 10800000}, …}
losses: […]                                                     # with `survive`
predicted: {value: 0.00574, bound: 0.00574, prefill: 0.0122}    # seconds, where times are kept
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from partc.config.units import format_ranges
from partc.differences.change import Change, changed_values, shown
from partc.format.plan import Message, PlanFile, StageRun, Timeline, losses_of

Record = Mapping[str, Any]
DIGITS = 3
"""Digits of a time that are kept: a plan is predicted to no more."""


def plan_record(plan: PlanFile, *, times: bool = True) -> dict[str, Any]:
    """The short form of a plan; `times`: with what it is predicted to take."""
    assert plan.predicted is not None, "a plan that is feasible has been evaluated"
    phases = plan.predicted.phases
    stages = {phase.phase: [_stage(run, plan.layers) for run in phase.stages] for phase in phases}
    each = list(stages.values())
    found: dict[str, Any] = {
        "objective": (plan.problem or {}).get("objective", "latency"),
        "method": plan.answer.method,
        "stages": each[0] if all(stage == each[0] for stage in each) else stages,
        "messages": _messages(phases),
        "memory": {
            use.device: {"needed": use.needed_bytes, "available": use.available_bytes}
            for use in plan.predicted.memory
        },
    }
    if losses := losses_of(plan):
        found["losses"] = [loss.text for loss in losses]
    if times:
        found["predicted"] = {
            "value": _rounded(plan.answer.value),
            "bound": _rounded(plan.answer.bound),
            **{phase.phase: _rounded(phase.latency_s) for phase in phases},
        }
    return found


def compare_plans(before: Record, after: Record) -> list[Change]:
    """What changed between two plans in their short form, the most general first."""
    ours, others = ({key: plan.get(key) for key in ("objective", "method")} for plan in (before, after))
    return [
        *changed_values("plan", "planned otherwise", ours, others),
        *_devices(before, after),
        *_stages(before, after),
        *_messages_changed(before, after),
        *_memory(before, after),
        *changed_values(
            "plan", "after a loss", _numbered(before.get("losses")), _numbered(after.get("losses"))
        ),
        *_times(before.get("predicted"), after.get("predicted")),
    ]


def _stage(run: StageRun, layers: Sequence[tuple[int, int]] | None) -> dict[str, str]:
    held = range(run.first, run.last + 1)
    mine = [layer for index in held for layer in layers[index]] if layers else []
    found = {"device": run.device, "submodules": format_ranges(held)}
    return {**found, "layers": format_ranges(range(min(mine), max(mine) + 1))} if mine else found


def _messages(phases: Sequence[Timeline]) -> list[dict[str, Any]]:
    """Messages of all phases, those of the same ends and values as one."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for phase in phases:
        for message in phase.messages:
            entry = found.setdefault(_identity(message), _entry(message))
            entry["bytes"][phase.phase] = entry["bytes"].get(phase.phase, 0) + message.bytes
    return list(found.values())


def _identity(message: Message) -> tuple[str, ...]:
    return message.sender, message.receiver, message.kind, *message.values


def _entry(message: Message) -> dict[str, Any]:
    return {
        "from": message.sender,
        "to": message.receiver,
        "kind": message.kind,
        "values": list(message.values),
        "bytes": {},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _devices(before: Record, after: Record) -> Iterator[Change]:
    """Devices that compute on one side alone."""
    ours, others = before["memory"], after["memory"]
    for name in ours:
        if name not in others:
            yield Change("plan", "device unused", name, _held(before, name), None)
    for name in others:
        if name not in ours:
            yield Change("plan", "device used", name, None, _held(after, name))


def _stages(before: Record, after: Record) -> Iterator[Change]:
    """What devices hold, that are in both plans."""
    for name in before["memory"]:
        if name in after["memory"]:
            ours, others = _held(before, name), _held(after, name)
            if ours != others:
                yield Change("plan", "cut moved", f"what {name} computes", ours, others)


def _held(plan: Record, device: str) -> str:
    """`layers 0-4 (sub-modules 0-9)`; where phases differ, each with its own."""
    stages = plan["stages"]
    if isinstance(stages, Mapping):
        each = {phase: _runs(runs, device) for phase, runs in stages.items()}
        return next(iter(each.values())) if len(set(each.values())) == 1 else _by_phase(each)
    return _runs(stages, device)


def _by_phase(texts: Mapping[str, str]) -> str:
    return "; ".join(f"{phase}: {text}" for phase, text in texts.items())


def _runs(stages: Sequence[Mapping[str, str]], device: str) -> str:
    mine = [stage for stage in stages if stage["device"] == device]
    return ", ".join(map(_run_text, mine))


def _run_text(stage: Mapping[str, str]) -> str:
    held = f"sub-modules {stage['submodules']}"
    return f"layers {stage['layers']} ({held})" if "layers" in stage else held


def _messages_changed(before: Record, after: Record) -> Iterator[Change]:
    ours, others = (_links(plan) for plan in (before, after))
    for link in dict.fromkeys([*ours, *others]):
        one, other = ours.get(link), others.get(link)
        if one is None or other is None:
            kind = "message added" if one is None else "message removed"
            yield Change("plan", kind, link, one and one[1], other and other[1])
        else:
            if one[0] != other[0]:
                yield Change("plan", "values sent", link, shown(one[0]), shown(other[0]))
            if one[1] != other[1]:
                yield Change("plan", "bytes on a link", link, one[1], other[1])


def _links(plan: Record) -> dict[str, tuple[str, str]]:
    """`phone → old` → the values that are sent there, and the bytes of all of them by phase."""
    found: dict[str, tuple[list[str], dict[str, float]]] = {}
    for message in plan.get("messages", ()):  # not written where one device computes all
        name = f"{message['from']} → {message['to']}"
        values, sizes = found.setdefault(name, ([], {}))
        values += message["values"]
        for phase, size in message["bytes"].items():
            sizes[phase] = sizes.get(phase, 0) + size
    return {
        name: (", ".join(values), ", ".join(f"{size:.0f} B a {phase} step" for phase, size in sizes.items()))
        for name, (values, sizes) in found.items()
    }


def _memory(before: Record, after: Record) -> Iterator[Change]:
    for key, word in (("needed", "memory needed"), ("available", "memory given")):
        ours, others = (
            {name: f"{use[key]} B" for name, use in plan["memory"].items()} for plan in (before, after)
        )
        both = {name: others[name] for name in ours if name in others}
        yield from changed_values("plan", word, {name: ours[name] for name in both}, both)


def _times(before: Record | None, after: Record | None) -> list[Change]:
    """Predicted times, where both plans keep them."""
    if not before or not after:
        return []
    return changed_values("plan", "predicted time", before, after)


def _numbered(texts: Sequence[str] | None) -> dict[str, str]:
    parted = (text.partition(": ") for text in texts or ())
    return {lost: rest or lost for lost, _, rest in parted}
