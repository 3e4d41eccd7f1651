"""The counts that runners would report if a plan were right: its own times, attributed as runners attribute them.

After `partc profile` the plan has what a call of the engine takes (call_s) in the latency of the message that the
stage waits for, and what a step takes on the source besides (step_s, the call of its first stage within it) in
sub-module 0. Runners count the call as computing, and the rest of the step for no device: it lies between the end
of one step and the start of the next, with the message that brings the result home. Sums stay as they are.

    device  = computing + call_s · stages  - step_s on the source
    message = link - call_s of its receiver; the result: link + step_s - call_s of the source

A plan without measured times is compared as it is.
"""

from __future__ import annotations

from partc.ir.plan import Message, Timeline
from partc.report.figures import Plan


def device_s(plan: Plan, phase: Timeline) -> dict[str, float]:
    """Device in use → seconds of computing in one step."""
    seconds = dict.fromkeys(plan.used, 0.0)
    for stage in phase.stages:
        seconds[stage.device] += stage.seconds + _overhead(plan, stage.device, "call_s")
    source = plan.case.problem.source
    seconds[source] -= _overhead(plan, source, "step_s")
    return {device: max(0.0, value) for device, value in seconds.items()}


def message_s(plan: Plan, message: Message) -> float:
    """Seconds from the end of the sender's computing to what the message is for."""
    receiver = message.receiver
    seconds = message.seconds
    call = _overhead(plan, receiver, "call_s")
    if message.is_return:
        return seconds + max(0.0, _overhead(plan, receiver, "step_s") - call)
    return max(0.0, seconds - call)


def _overhead(plan: Plan, device: str, name: str) -> float:
    return plan.overheads.get(device, {}).get(name, 0.0)
