"""One step of a request on one device, on its way through the program of its phase.

Instructions that only move values are carried out at once. `Run` and `Sample` are asked for (`Compute`, `Draw`), and
the execution stands at them until `computed`. A message that has come waits in the inbox for its `Recv`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from msgspec.structs import replace

from partc.errors import InternalError, RunError
from partc.format.dtypes import DTYPES, Array, as_float32
from partc.format.message_parts import Sampling
from partc.format.program import (
    REPLAY,
    Add,
    Cut,
    Emit,
    Instruction,
    Join,
    Keep,
    Message,
    Program,
    Recv,
    Run,
    Sample,
    Send,
)
from partc.format.program_rules import dims_of_call
from partc.format.role import Role
from partc.format.status import SAMPLE
from partc.runtime.core.actions import Action, Forward, Seen
from partc.runtime.core.commands import Compute, Draw
from partc.runtime.core.device.script import Script
from partc.runtime.core.device.timings import Timing
from partc.runtime.core.device.values import cut, likely, total_of
from partc.runtime.core.step import Step

Key = tuple[str, tuple[str, ...]]
"""Sender and names of a message: the names tell the messages of one sender in a step apart."""


@dataclass(frozen=True, slots=True)
class Row:
    """A request as its rows in a step need it."""

    slot: int
    sampling: Sampling


@dataclass(slots=True)
class Execution:
    """A step that is under way."""

    script: Script
    step: Step
    rows: Sequence[Row]
    """The request of each row that is a step of its own; the first is the one that executes the step."""
    trace: bool
    values: dict[str, Array]
    """What is there by now."""
    timing: Timing
    resets: bool
    """Whether the next sub-module that runs finds the states of an earlier request."""
    waiting_since: float | None = None
    """Since when it waits for a message."""
    ready_since: float = 0.0
    """Since when it could go on."""
    emitted: Mapping[str, Array] = field(default_factory=dict)
    """Values for the client."""
    kept: Mapping[str, Array] | None = None
    """Values that later steps read; None: nothing is said of them."""
    tokens: int = field(init=False)
    """Steps of its request that are over with it: those of its rows that have not been taken back."""
    _role: Role = field(init=False)
    _program: Program = field(init=False)
    _awaits: Sequence[tuple[Message, ...]] = field(init=False)
    _dead: Sequence[frozenset[str]] = field(init=False)
    _at: int = 0
    _inbox: dict[Key, tuple[Mapping[str, Array], float]] = field(default_factory=dict)
    """Messages that have come, and when."""
    _came: set[Key] = field(default_factory=set)
    """All messages that have been in the inbox."""

    def __post_init__(self) -> None:
        self.tokens = 1 + self.step.further
        script, phase = self.script, self.step.phase
        self._role = script.role
        self._program, self._awaits = script.role.programs[phase], script.awaits[phase]
        self._dead = script.dead[phase]

    @property
    def is_over(self) -> bool:
        """Whether no instruction is left."""
        return self._at == len(self._program)

    @property
    def awaited(self) -> Message | None:
        """The first message that the instruction waits for and that has not come."""
        if self.is_over:
            return None
        return next((message for message in self._awaits[self._at] if message not in self._inbox), None)

    @property
    def can_go_on(self) -> bool:
        """Whether the instruction that it stands at may be carried out now, or none is left."""
        return self.awaited is None

    @property
    def works_at(self) -> str:
        """The sub-module, or `sample`, at which it stands."""
        item = self._program[self._at]
        return item.submodule if isinstance(item, Run) else SAMPLE

    def has_begun(self, submodule: str, *, is_computing: bool) -> bool:
        """Whether it has run a sub-module, or runs it."""
        begun = self._program[: self._at + is_computing]
        return any(isinstance(item, Run) and item.submodule == submodule for item in begun)

    def deliver(self, peer: str, step: Step, values: Mapping[str, Array], now: float) -> list[Action]:
        """Take a message of this step.

        Raises:
            RunError: it came already.
        """
        key = (peer, tuple(values))
        if key in self._came:
            message = f"{peer} sent {', '.join(values)} twice in step {step.step}"
            raise RunError(message, cause="refused")
        self._came.add(key)
        if step.likely:
            self.step = replace(self.step, likely=step.likely)
        if step.busy_s is not None and step.busy_s > (self.step.busy_s or 0.0):
            self.step = replace(self.step, busy_s=step.busy_s)
        self._inbox[key] = (values, now)
        self.timing.received_bytes += sum([array.nbytes for array in values.values()])
        return [Seen(peer, step, values)] if self.trace and step.phase != REPLAY else []

    def advance(self, actions: list[Action], *, computes: bool) -> bool:
        """Go on until a message is missing, the step is over, or something must be computed: then it is True.

        Unless it `computes` it stops before that.
        """
        program, awaits = self._program, self._awaits
        while self._at < len(program) and not (awaits[self._at] and self.awaited):
            instruction = program[self._at]
            if not computes and isinstance(instruction, Run | Sample):
                return False
            if self._execute(instruction, actions):
                return True
            self._pass()
        return False

    def computed(self, values: Sequence[Array], seconds: float) -> None:
        """Take the result that `advance` asked for."""
        instruction = self._program[self._at]
        if not isinstance(instruction, Run | Sample):
            raise InternalError(f"{instruction} computes nothing")
        if isinstance(instruction, Sample) and len(values) > 1:
            wanted = [row.sampling.likely for row in self.rows]
            self.step = replace(self.step, likely=likely(values[1:], wanted))
            values = values[:1]
        self.values.update(zip(instruction.writes, values, strict=True))
        self.timing.compute_s += seconds
        self._pass()

    def drop(self) -> None:
        """Let all values go: nothing will follow, though something may still be computed."""
        self.values.clear()
        self._inbox.clear()

    @property
    def as_told(self) -> Step:
        """The step as others are told of it: with the time of the busiest device, where that is wanted."""
        step = self.step
        if step.busy_s is None or step.busy_s >= self.timing.compute_s:
            return step
        return replace(step, busy_s=self.timing.compute_s)

    # -- inner workings

    def _execute(self, instruction: Instruction, actions: list[Action]) -> bool:
        """Carry out an instruction; whether it must be computed."""
        values, step = self.values, self.step
        match instruction:
            case Recv():
                self._receive(instruction)
            case Run():
                return self._run(instruction, actions)
            case Send(values=names, device=peer):
                arrays = [values[name] for name in names]
                self.timing.sent_bytes += sum([array.nbytes for array in arrays])
                actions.append(Forward(peer, self.as_told, names, arrays))
            case Sample(logits=name):
                if self.trace:
                    actions.append(Seen(self._role.device, step, {name: values[name]}))
                actions.append(self._draw(name))
                return True
            case Add(terms=names, total=total):
                values[total] = total_of([values[name] for name in names])
            case Cut(whole=name, parts=names, axis=axis):
                values.update(zip(names, cut(values[name], len(names), axis), strict=True))
            case Join(parts=names, whole=name, axis=axis):
                values[name] = np.concatenate([values[part] for part in names], axis)
            case Emit(values=names):
                self.emitted = {name: values[name] for name in names}
            case Keep(values=names):
                self.kept = {name: values[name] for name in names}
            case _:
                assert_never(instruction)
        return False

    def _run(self, run: Run, actions: list[Action]) -> bool:
        """Ask for a sub-module, with the sizes that it is called with; not if it has no elements to compute."""
        dims = self.step.dims
        module, arrays = self._role.submodules[run.submodule], [self.values[name] for name in run.inputs]
        if run.inputs != module.inputs:
            kinds = [self._role.types[name] for name in module.inputs]
            dims = dims_of_call(kinds, [array.shape for array in arrays], dims)
            if not module.states and self._makes_nothing(run, dims):
                return False
        slots = tuple([row.slot for row in self.rows[1:]])
        actions.append(Compute(run.submodule, self.rows[0].slot, arrays, dims, self.resets, slots))
        self.resets = False
        return True

    def _makes_nothing(self, run: Run, dims: Mapping[str, int]) -> bool:
        """Whether all outputs of a call are empty; then they are there."""
        kinds = [self._role.types[name] for name in self._role.submodules[run.submodule].outputs]
        if any(kind.bytes(dims) for kind in kinds):
            return False
        made = [np.empty(kind.sizes(dims), DTYPES[kind.dtype]) for kind in kinds]
        self.values.update(zip(run.outputs, made, strict=True))
        return True

    def _receive(self, instruction: Recv) -> None:
        peer = instruction.device
        came, at = self._inbox.pop((peer, instruction.values))
        self.values.update(came)
        if self.waiting_since is not None:
            waited = max(0.0, at - self.waiting_since)
            self.timing.wait_s[peer] = self.timing.wait_s.get(peer, 0.0) + waited
            self.waiting_since = None

    def _draw(self, name: str) -> Draw:
        logits = as_float32(self.values[name], self._role.types[name].dtype)
        if logits.ndim != 3 or logits.shape[1] != 1:
            raise InternalError(f"logits have the shape {logits.shape}, not (batch, 1, vocabulary)")
        first, *others = self.rows
        return Draw(logits[:, 0, :], first.sampling, self.step.end, tuple([row.sampling for row in others]))

    def _pass(self) -> None:
        """Go to the next instruction; values that nothing uses any more are let go."""
        for name in self._dead[self._at]:
            self.values.pop(name, None)
        self._at += 1
