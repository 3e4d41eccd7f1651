"""The programs of a device, and what can be known of them before any request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partc.format.program import Message
from partc.format.role import Role
from partc.runtime.core.device.values import last_uses
from partc.runtime.core.step import MOST_FORCED


@dataclass(frozen=True, slots=True)
class Script:
    """The programs of a device, and what can be known of them before any request."""

    role: Role
    dead: Mapping[str, Sequence[frozenset[str]]]
    """Phase → per instruction, the values that nothing after it uses, so that their memory can go."""
    awaits: Mapping[str, Sequence[tuple[Message, ...]]]
    """Phase → per instruction, the messages that it waits for."""
    most_steps: int
    """Steps that may be known before the one under way is over."""
    most_early: int
    """Messages that those bring at most."""

    @classmethod
    def of(cls, role: Role) -> Script:
        """Look at the programs of a device."""
        awaits = {phase: [item.awaits for item in program] for phase, program in role.programs.items()}
        most = max(sum(map(len, messages)) for messages in awaits.values())
        steps = MOST_FORCED + role.model.most_chunks
        dead = {phase: last_uses(program) for phase, program in role.programs.items()}
        return cls(role, dead, awaits, steps, steps * most)
