"""Capabilities of a ring: one table, each with the reason for which it may be missing.

`partc plan` and `compile` show what follows from the plan, `run`, `serve` and `watch` what follows from the build and
from the runners as well. Nothing is decided here.

| capability | it matters where |
| --- | --- |
| shared-steps: one step computes the tokens of several requests | several requests are in flight |
| prompt-reuse: a prompt goes on behind the rows of an earlier one | the model generates |
| drafts: steps take guessed tokens, behind their own or while the true ones are on their way | the model generates |
| survival: the ring goes on without a device that is lost | there are several devices |
| balancing: sub-modules move where that makes the ring faster | there are several devices |
| limits: a device that reaches one of its `limits` is relieved | a device has limits |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from partc.format.placement import Placement
from partc.format.role import Role
from partc.format.status import RingStatus

Name = Literal["shared-steps", "prompt-reuse", "drafts", "survival", "balancing", "limits"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a ring that capabilities follow from."""

    source: str
    ring: Sequence[str]
    generates: bool
    max_requests: int
    engines: Mapping[str, str]
    """Device → kind of its engine; `plan` computes steps of several requests."""
    keeps: bool = False
    """Whether a first step makes what later ones read: the model reads a source, a picture or a sound."""
    rewrites: bool = False
    """Whether steps rewrite states as a whole."""
    uniform: bool = False
    """Whether the model has one position for all sequences."""
    step_requests: int = 1
    """Requests of a shared step by the build; 1: there are none."""
    reuses: bool = False
    """Whether prompts may be gone on from by the build."""
    drafts: bool = False
    """Whether steps may take guessed tokens by the build."""
    step_tokens: int = 1
    """Tokens of a request that one step computes at most, by the build."""
    groups: bool = False
    """Whether several devices share a stage."""
    movable: bool = False
    """Whether a sub-module lies on several devices."""
    survives: Sequence[str] = ()
    """Devices whose loss the build survives."""
    limited: Sequence[str] = ()
    """Devices with `limits`."""
    alone: Sequence[str] = ()
    """Devices whose runners take no shared steps: those of earlier versions."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A capability that a ring does not have."""

    name: Name
    sentence: str
    """A line for the user: the capability, and the reason."""


def facts_of(roles: Mapping[str, Role]) -> Facts:
    """The facts of a build, of the roles of all its devices, the source among them."""
    source = next(role for role in roles.values() if role.is_source)
    model, ring = source.model, source.ring
    in_ring = [role for name, role in roles.items() if name in ring]
    held = Counter(name for role in roles.values() for name in role.submodules)
    return Facts(
        source=source.device,
        ring=ring,
        generates=model.generates,
        max_requests=model.max_requests,
        engines={role.device: role.engine.kind for role in in_ring},
        keeps=source.keeps,
        rewrites=any(role.rewrites_any for role in in_ring),
        uniform=model.uniform_positions,
        step_requests=model.step_requests,
        reuses=model.prefix_reuse,
        drafts=model.drafts,
        step_tokens=model.most_tokens,
        groups=has_shared_stages(source.placement),
        movable=any(count > 1 for count in held.values()),
        survives=tuple(source.build.survives),
        limited=[role.device for role in roles.values() if role.build.limits is not None],
    )


def has_shared_stages(placement: Placement) -> bool:
    """Whether several devices share a stage."""
    return any(len(stage.devices) > 1 for stages in placement.stages.values() for stage in stages)


def of_ring(facts: Facts, status: RingStatus) -> Facts:
    """The same with what the source of the ring tells of its runners."""
    ring = [device for device in status.devices if device.submodules and device.is_present]
    return replace(facts, alone=[device.device for device in ring if not device.shares])


def missing(facts: Facts) -> list[Missing]:
    """The capabilities that a ring does not have, with the reasons."""
    found = ((name, reason(facts)) for name, reason in CAPABILITIES.items())
    return [Missing(name, sentence) for name, sentence in found if sentence is not None]


def _shared_steps(facts: Facts) -> str | None:
    if not facts.generates or facts.max_requests < 2:
        return None
    reason = next(_no_shared_steps(facts), None)
    return None if reason is None else f"requests take turns: {reason}"


def _no_shared_steps(facts: Facts) -> Iterator[str]:
    if facts.keeps:
        yield "the model keeps what the first step of a request makes"
    if facts.uniform:
        yield "the model has one position for all sequences of a step"
    kinds = dict.fromkeys(facts.engines.values())
    for kind in kinds if "plan" not in kinds else ():
        names = ", ".join(name for name, own in facts.engines.items() if own == kind)
        yield f"`{kind}` on {names} computes one request at a time"
    if facts.step_requests < 2:
        yield "the build has steps of one request only"
    if facts.alone:
        yield f"the runner of {', '.join(facts.alone)} takes no shared steps: it is of an earlier version"


def _prompt_reuse(facts: Facts) -> str | None:
    if not facts.generates or facts.reuses:
        return None
    if facts.keeps:
        reason = "the model keeps what the first step of a request makes"
    elif facts.rewrites:
        reason = "its steps rewrite states of the model as a whole"
    else:
        reason = "an engine takes no part of a prompt behind another"
    return f"beginnings of prompts are computed each time: {reason}"


def _drafts(facts: Facts) -> str | None:
    is_alone = len(facts.ring) < 2
    if not facts.generates or (facts.drafts and (facts.step_tokens > 1 or not is_alone)):
        return None
    if facts.rewrites:
        reason = "its steps rewrite states of the model as a whole"
    elif not facts.drafts:
        reason = "model.yaml has `drafts: off`"
    else:
        reason = f"{facts.source} is alone, and computes one token in a step; `target: tvm` computes several"
    return f"no tokens are guessed: {reason}"


def _survival(facts: Facts) -> str | None:
    others = [name for name in facts.ring if name != facts.source and name not in facts.survives]
    if not others:
        return None
    reason = (
        "the others cannot take its part" if facts.survives else "devices.yaml has no `survive: one` for it"
    )
    return f"a loss of {', '.join(others)} stops the ring until it is back: {reason}"


def _balancing(facts: Facts) -> str | None:
    if len(facts.ring) < 2:
        return None
    reason = _immovable(facts)
    return None if reason is None else f"nothing balances: {reason}"


def _immovable(facts: Facts) -> str | None:
    if facts.groups:
        return "devices share stages"
    if not facts.movable:
        return "each sub-module is on one device only; `overlap` puts some on two"
    return None


def _limits(facts: Facts) -> str | None:
    if not facts.limited:
        return None
    names = ", ".join(facts.limited)
    reason = "there is one device" if len(facts.ring) < 2 else _immovable(facts)
    return None if reason is None else f"limits of {names} are shown, not acted on: {reason}"


CAPABILITIES: Mapping[Name, Callable[[Facts], str | None]] = {
    "shared-steps": _shared_steps,
    "prompt-reuse": _prompt_reuse,
    "drafts": _drafts,
    "survival": _survival,
    "balancing": _balancing,
    "limits": _limits,
}
"""Capability → the sentence that says why it is missing; None: it is there, or does not matter."""
