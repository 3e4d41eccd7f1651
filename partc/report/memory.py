"""Memory of every device as a bar: what fills it, what is left of what it may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partc.format.plan import MemoryUse
from partc.format.role import Role
from partc.report.figures import Figure, Plan, pointer
from partc.report.lanes import percent


@dataclass(frozen=True)
class Part:
    """One kind of contents."""

    kind: str
    """A class of the style sheet: weights, caches, peak, overhead, mirrors, free."""
    name: str
    bytes: Figure
    width: str
    """In per cent of what the device may use."""


@dataclass(frozen=True)
class MemoryBar:
    """One device in use."""

    device: str
    tone: str
    parts: tuple[Part, ...]
    needed: Figure
    available: Figure
    share: Figure


def memory_bars(plan: Plan) -> list[MemoryBar]:
    """The memory of the devices in use, in ring order; a build tells weights from caches."""
    return [
        _bar(plan, index, use, plan.roles.get(use.device)) for index, use in enumerate(plan.predicted.memory)
    ]


def _bar(plan: Plan, index: int, use: MemoryUse, role: Role | None) -> MemoryBar:
    own, available = (
        pointer("predicted", "memory", index, name) for name in ("needed_bytes", "available_bytes")
    )
    needed = [own, *_mirrors(plan, use.device)]
    taken = plan.figure("bytes", *needed, rule="sum")
    parts = [*_contents(plan, use, own, role)]
    if needed[1:]:
        parts.append(("mirrors", "caches of other devices", plan.figure("bytes", *needed[1:], rule="sum")))
    if use.available_bytes > taken.value:
        parts.append(("free", "free", plan.figure("bytes", available, *needed, rule="difference")))
    whole = max(use.available_bytes, taken.value)
    return MemoryBar(
        device=use.device,
        tone=f"d{plan.devices.index(use.device)}",
        parts=tuple(
            Part(kind, name, size, percent(size.value, whole)) for kind, name, size in parts if size.value > 0
        ),
        needed=taken,
        available=plan.figure("bytes", available),
        share=plan.figure("percent", *needed, available, rule="share"),
    )


def _mirrors(plan: Plan, device: str) -> list[str]:
    """Places of the caches of other devices that this one keeps, too."""
    mirrors = (plan.data.get("survival") or {}).get("mirrors", [])
    return [
        pointer("survival", "mirrors", index, "memory_bytes")
        for index, mirror in enumerate(mirrors)
        if mirror["holder"] == device
    ]


def _contents(
    plan: Plan, use: MemoryUse, needed: str, role: Role | None
) -> Iterator[tuple[str, str, Figure]]:
    """(kind, name, size) of what the needed bytes consist of; all sizes together are the needed bytes."""
    mine = plan.case.held(use.device)
    shared = _shared(plan, mine)
    rest = _rest(plan, use, mine)
    weights = plan.figure("bytes", needed, *rest, *shared, rule="difference")
    caches = _state_bytes(role) if role else 0
    if 0 < caches < weights.value:
        yield "weights", "weights", Figure(weights.value - caches, "bytes")
        yield "caches", "KV caches", Figure(caches, "bytes")
    else:
        yield "weights", "weights" if role else "weights and KV caches", weights
    if shared:
        yield "shared", "shared weights", plan.figure("bytes", *shared, rule="sum")
    names = {"peak_bytes": ("peak", "peak of activations"), "overhead_bytes": ("overhead", "runtime")}
    for place in rest:
        kind, name = names[place.rpartition("/")[2]]
        yield kind, name, plan.figure("bytes", place)


def _state_bytes(role: Role) -> int:
    """The bytes of all states, for as many requests as may be in flight."""
    states = (state.type for name in role.running for state in role.submodules[name].states)
    return sum(state.bytes(role.dims) for state in states) * role.model.max_requests


def _rest(plan: Plan, use: MemoryUse, mine: Sequence[int]) -> list[str]:
    """Places of what is neither weights nor caches: the largest peak, and the runtime's own."""
    submodules = plan.problem["submodules"]
    found = []
    largest = max(mine, key=lambda number: float(submodules[number].get("peak_bytes", 0)))
    if submodules[largest].get("peak_bytes"):
        found.append(pointer("problem", "submodules", largest, "peak_bytes"))
    place = plan.index_of[use.device]
    if plan.problem["devices"][place].get("overhead_bytes"):
        found.append(pointer("problem", "devices", place, "overhead_bytes"))
    return found


def _shared(plan: Plan, mine: Sequence[int]) -> list[str]:
    """Places of each shared group once, as the device holds it."""
    groups: dict[str, str] = {}
    for number in mine:
        shared = plan.problem["submodules"][number].get("shared")
        if shared:
            groups.setdefault(shared["name"], pointer("problem", "submodules", number, "shared", "bytes"))
    return list(groups.values())
