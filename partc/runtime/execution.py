"""What a device knows of a request, and of a step of it that is being executed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from partc.format.dtypes import Array
from partc.format.program import Program, Recv
from partc.runtime.core.sampling import Sampling
from partc.runtime.core.timings import Timing
from partc.runtime.wire import Step


@dataclass(slots=True)
class OpenRequest:
    """A request as one device knows it."""

    number: int
    slot: int
    sampling: Sampling
    trace: bool
    idle_since: float
    next_step: int = 0
    next_position: tuple[int, ...] | None = None
    phase: str = ""
    """Of its last step."""
    parts: int = 0
    """Steps of its prompt before the prefill."""
    queued: deque[tuple[Step, Mapping[str, Array]]] = field(default_factory=deque)
    """Steps that begin here when the one before is done."""
    early: list[tuple[str, Step, Mapping[str, Array]]] = field(default_factory=list)
    """Messages of later steps."""

    def is_next(self, step: Step) -> bool:
        """Whether a step follows the last one."""
        fits = step.step == self.next_step and self.next_position in (None, step.position)
        return (
            fits
            and step.slot == self.slot
            and (step.phase == "decode") == (self.phase in ("prefill", "decode"))
        )


@dataclass(slots=True)
class Execution:
    """A program under way: one step of one request."""

    step: Step
    request: OpenRequest
    program: Program
    timing: Timing
    values: dict[str, Array]
    order: int = 0
    """How many steps have begun here when it does."""
    inbox: dict[tuple[str, tuple[str, ...]], tuple[Mapping[str, Array], float]] = field(default_factory=dict)
    """(sender, names) → values, and when they came; the names tell the messages of one sender apart."""
    came: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    """All that has been in the inbox."""
    at: int = 0
    waiting_since: float | None = None
    ready_since: float = 0.0
    emitted: Mapping[str, Array] = field(default_factory=dict)

    def awaits(self) -> Recv | None:
        """The message that it waits for, unless that has come."""
        if self.at == len(self.program):
            return None
        instruction = self.program[self.at]
        if isinstance(instruction, Recv) and (instruction.device, instruction.values) not in self.inbox:
            return instruction
        return None
