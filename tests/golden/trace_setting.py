"""The device of a trace, and the placements that may follow, as `tests/golden/trace.py` describes their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from partc.format.placement import Placement, seal_placement
from partc.format.role import Role
from partc.runtime.core.start import Start
from tests.golden.trace_values import TraceError
from tests.runtime.roles import Kind, Programs, chain, placement_of, roles_of

COMPILED = "compiled"
"""Name of the placement with which the device starts."""
_LIMITS = ("max_batch", "max_requests", "step_requests", "prompt_chunk")
_STARTS = {
    "patience": "patience_s", "first_request": "first_request", "rejoin": "rejoin_s", "linger": "linger_s",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A device before anything has happened to it."""

    role: Role
    start: Start
    placements: Mapping[str, Placement] = field(default_factory=dict)
    """Those that may be in force, by name."""
    logs: bool = False
    """Whether lines of the log are shown."""

    def placement(self, name: str, epoch: int) -> Placement:
        """A placement under an epoch."""
        if name not in self.placements:
            raise TraceError(f"there is no placement {name!r}")
        return seal_placement(replace(self.placements[name], epoch=epoch))

    def name_of(self, placement_id: str, epoch: int) -> str | None:
        """The name of the placement that has an id under an epoch."""
        found = (name for name in self.placements if self.placement(name, epoch).placement_id == placement_id)
        return next(found, None)


def parse_setting(device: str, text: str, others: Mapping[str, str] = {}) -> Setting:
    """Read the role of a device, and the blocks of placements by name.

    Raises:
        TraceError: a line is not understood.
    """
    facts, programs = _parse(device, text)
    following = {name: _parse(device, block)[1] for name, block in others.items()}
    limits: dict[str, Any] = {key: int(facts.pop(key)[0]) for key in _LIMITS if key in facts}
    picture = facts.pop("picture", None)
    if picture is not None:
        limits["picture"] = (picture[0], int(picture[1]), int(picture[2]))
    for key in ("prompt_steps", "step_tokens"):
        sizes = list(map(int, facts.pop(key, ())))
        limits[key] = tuple(zip(sizes[::2], sizes[1::2], strict=True))
    logs = facts.pop("logs", ["0"])[0] == "1"
    rewritten = facts.pop("rewritten", ())
    held, contingencies = facts.pop("holds", None), facts.pop("contingencies", ())
    kinds: dict[str, Sequence[Kind]] = dict.fromkeys(rewritten, ("whole",))
    role = roles_of(programs, others=list(following.values()), kinds=kinds, **limits)[device]
    if held is not None:
        role = role.changed(submodules=tuple(each for each in role.build.submodules if each.name in held))
    placements = {name: placement_of(each, role.addresses) for name, each in following.items()}
    if odd := facts.keys() - _STARTS.keys():
        raise TraceError(f"{min(odd)!r} is no setting")
    numbers = {_STARTS[key]: int(words[0]) for key, words in facts.items()}
    start = Start(incarnation=1, contingencies=[placements[name] for name in contingencies], **numbers)  # type: ignore[arg-type]
    return Setting(role, start, {COMPILED: role.placement, **placements}, logs)


def _parse(device: str, text: str) -> tuple[dict[str, list[str]], Programs]:
    """Facts by key, and the programs of all devices of the ring."""
    facts: dict[str, list[str]] = {}
    own: dict[str, list[str]] = {}
    phases: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        if line.endswith(":"):
            phases = [phase.strip() for phase in line[:-1].split(",")]
            own.update((phase, []) for phase in phases)
        elif line[0].isspace():
            for phase in phases:
                own[phase].append(line.strip())
        else:
            key, *facts[key] = line.replace(",", " , ").split()
    if "chain" in facts:
        return facts, chain(" ".join(facts.pop("chain")))
    texts = {phase: "\n".join(lines) for phase, lines in own.items()}
    return facts, {name: texts if name == device else dict.fromkeys(texts, "") for name in facts.pop("ring")}
