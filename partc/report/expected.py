"""The counts that runners would report if a plan were right: its own times, attributed as runners attribute them.

Where devices were measured, a plan has what a step costs one of them besides its sub-modules (with a call of the
engine, call_s) in the message that begins its stage (hop_s), or on the source in sub-module 0 (step_s). Runners count
the call as computing. The rest of it is their own time, which they count for no device: it lies between the end of
its computing and the arrival of its message at the next device. Sums stay as they are.

    own     = step_s on the source, hop_s elsewhere; without call_s
    device  = computing + call_s · stages - step_s on the source
    message = link - hop_s of its receiver, of a result nothing + own of its sender

A plan without measured times is compared as it is.
"""

from __future__ import annotations

from partc.format.plan import Message, Timeline
from partc.report.figures import Plan


def device_s(plan: Plan, phase: Timeline) -> dict[str, float]:
    """Device in use → seconds of computing in one step."""
    seconds = dict.fromkeys(plan.used, 0.0)
    if lanes := plan.lanes.get(phase.phase):  # from the first to the last work of a stage a device waits, too
        return {device: lanes.busy_s().get(device, 0.0) for device in seconds}
    for stage in phase.stages:
        seconds[stage.device] += stage.seconds + _overhead(plan, stage.device, "call_s")
    source = plan.case.problem.source
    seconds[source] -= _overhead(plan, source, "step_s")
    return {device: max(0.0, value) for device, value in seconds.items()}


def message_s(plan: Plan, message: Message) -> float:
    """Seconds from the end of the sender's computing to what the message is for."""
    hop = 0.0 if message.is_return else _overhead(plan, message.receiver, "hop_s")
    own = _besides(plan, message.sender) - _overhead(plan, message.sender, "call_s")
    return max(0.0, message.seconds - hop + max(0.0, own))


def _besides(plan: Plan, device: str) -> float:
    """Seconds that a step costs a device besides its sub-modules."""
    return _overhead(plan, device, "step_s" if device == plan.case.problem.source else "hop_s")


def _overhead(plan: Plan, device: str, name: str) -> float:
    return plan.overheads.get(device, {}).get(name, 0.0)
