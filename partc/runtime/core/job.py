"""One request at the source: what its client asked for, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Opening, Sampling
from partc.format.messages import Submit
from partc.format.program import CHUNK
from partc.format.role import Role
from partc.runtime.core.events import Origin
from partc.runtime.core.inputs import (
    GENERATION,
    check_prompts,
    check_tensors,
    padded,
    prompt_parts,
    read_tensors,
)
from partc.runtime.core.liveness import Progress
from partc.runtime.core.step import Step


@dataclass(slots=True, eq=False)
class Job:
    """One request of a client."""

    origin: Origin
    ticket: bytes
    """The client's name for it."""
    sampling: Sampling
    trace: bool
    submitted: float
    """Seconds on the source's clock, as all times here."""
    progress: Progress
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """Inputs of the first step."""
    dims: Mapping[str, int] = field(default_factory=dict)
    position: tuple[int, ...] = ()
    length: tuple[int, ...] = ()
    max_new_tokens: int = 0
    stop: frozenset[int] = frozenset()
    tokens: list[list[int]] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    """The reason for each sequence's end: `stop` or `length`; empty while it goes on."""
    number: int = -1
    slot: int = -1
    step: int = 0
    """Number of the token that it waits for, from 0."""
    started: float = 0.0
    outputs: Mapping[str, Array] = field(default_factory=dict)
    reports: set[str] = field(default_factory=set)
    """Devices whose timings have not come yet."""

    def take(self, tokens: Sequence[int]) -> tuple[int | None, ...]:
        """Take one token per sequence; the new ones, None where a sequence has ended before."""
        fresh: list[int | None] = []
        for row, token in enumerate(tokens):
            if self.finish[row]:
                fresh.append(None)
                continue
            self.tokens[row].append(token)
            self.finish[row] = self._verdict(row, token)
            fresh.append(token)
        return tuple(fresh)

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return all(self.finish)

    def steps(self, role: Role) -> Iterator[tuple[Step, Mapping[str, Array]]]:
        """The steps of the prompt with their inputs: one, or one a part."""
        opening = Opening(self.number, self.sampling, self.trace)
        width = self.dims.get("sequence", 1)
        for part, (begin, end, inputs) in enumerate(prompt_parts(self.inputs, width, len(self.length), role)):
            whole = end - begin == width
            yield (
                Step(
                    request=self.number,
                    slot=self.slot,
                    step=part,
                    phase=CHUNK if end < width else "prefill",
                    dims=self.dims if whole else {**self.dims, "sequence": end - begin},
                    position=self.position if whole else (begin,),
                    length=self.length if whole else (end - begin,),
                    opening=None if part else opening,
                ),
                inputs,
            )

    def _verdict(self, row: int, token: int) -> str:
        if token in self.stop:
            return "stop"
        return "length" if len(self.tokens[row]) >= self.max_new_tokens else ""


def read_job(origin: Origin, submit: Submit, frames: Sequence[memoryview], role: Role, now: float) -> Job:
    """The request that a message asks for.

    Raises:
        RunError: it is more than the plan allows, or not this model's task.
    """
    job = Job(origin, submit.ticket, submit.sampling, submit.trace, now, Progress(now))
    if submit.values:
        _fill_tensors(job, submit, frames, role)
    else:
        _fill_prompts(job, submit, role)
    return job


def _fill_prompts(job: Job, submit: Submit, role: Role) -> None:
    """Make the first step of prompts: right-padded to one length, each sequence with its own `length`."""
    check_prompts(submit.prompts, submit.max_new_tokens, role)
    _fill(job, padded(submit.prompts, role), [len(prompt) for prompt in submit.prompts], role)
    if role.model.task != GENERATION:
        return
    job.max_new_tokens = submit.max_new_tokens
    ends = () if submit.ignore_eos else role.model.eos_token_ids
    job.stop = frozenset((*ends, *submit.stop))
    job.tokens = [[] for _ in submit.prompts]
    job.finish = ["" for _ in submit.prompts]


def _fill_tensors(job: Job, submit: Submit, frames: Sequence[memoryview], role: Role) -> None:
    """Make the only step of a request that brings its tensors."""
    if role.model.task == GENERATION:
        raise RunError("a model that generates text takes prompts, not tensors", hint="Client.generate")
    arrays = read_tensors(submit.values, frames)
    given = arrays.pop("length", None) if role.has_step_inputs else None
    if given is not None and given.dtype.kind not in "iu":
        raise RunError(f"{given.dtype.name} is no type of integers", where="length")
    _fill(job, arrays, None if given is None else [int(length) for length in given.reshape(-1)], role)


def _fill(job: Job, arrays: dict[str, Array], given: list[int] | None, role: Role) -> None:
    job.dims = check_tensors(arrays, role)
    job.inputs = arrays
    if role.has_step_inputs:
        rows, width = job.dims.get("batch", 1), job.dims.get("sequence", 1)
        lengths = [width] * rows if given is None else given
        job.position = (0,) * len(lengths)
        job.length = tuple(lengths)
        if len(lengths) != rows or not all(1 <= length <= width for length in lengths):
            raise RunError(f"the lengths {lengths} do not fit {rows} sequences of {width}", where="length")
