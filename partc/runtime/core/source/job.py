"""One request at the source: what its client asked for, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Likely, Opening, Resumption, Reuse, Sampling
from partc.format.messages import Crossed, Submit, Token
from partc.format.program import CHUNK, REPLAY
from partc.format.role import Role
from partc.format.tasks import INPUT_IDS
from partc.runtime.core.events import Origin
from partc.runtime.core.liveness import Progress
from partc.runtime.core.source.inputs import (
    check_length,
    check_placeholders,
    check_prompts,
    check_tensors,
    columns,
    padded,
    prompt_parts,
    read_tensors,
    with_media,
    with_start,
)
from partc.runtime.core.step import MOST_FORCED, Step
from partc.runtime.core.tokens import check_tokens

Call = tuple[Step, Mapping[str, Array]]
"""A step and its inputs."""


@dataclass(slots=True, eq=False)
class Job:
    """One request of a client."""

    origin: Origin | None
    """The client's connection; None: it is broken."""
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
    shares: bool = False
    """Whether it may share steps with others: one sequence, whose client does not ask that it is computed as alone."""
    reusable: tuple[int, ...] = ()
    """The prompt, where its rows may be those of an earlier request, and those of a later one; else empty."""
    reuse: Reuse | None = None
    """The rows of an earlier request that it goes on behind."""
    over: int = 0
    """Steps that are over on all devices, in the placement in force."""
    number: int = -1
    slot: int = -1
    prompt: list[Call] = field(default_factory=list)
    """The steps of the prompt."""
    drawn: list[Array] = field(default_factory=list)
    """(batch,) each: the tokens of every step as they were drawn, also those of sequences that have ended."""
    likely: dict[int, tuple[tuple[Likely, ...], ...]] = field(default_factory=dict)
    """Token, from 0 → the probabilities that came with it."""
    next_step: int = 0
    """The step that begins next."""
    in_flight: bool = False
    """Whether a step is under way whose values are waited for."""
    replayed: int = 0
    mismatches: int = 0
    crossed: set[tuple[str, str, int, tuple[str, ...]]] = field(default_factory=set)
    """(device, sender, step, values) of the tensors that a traced request was told of."""
    losses: Counter[str] = field(default_factory=Counter)
    """Device → how often it was lost while this request ran."""
    _stood: tuple[int, float] = (-1, 0.0)
    """The token that was waited for when the request last stood still, and since when."""
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

    def drew(self, tokens: Array, likely: tuple[tuple[Likely, ...], ...]) -> Token:
        """Take what a step has drawn, (batch,), with its probabilities; the message that tells of it."""
        number, fresh = self.step, self.take(tokens.tolist())
        self.drawn.append(tokens)
        if likely:
            self.likely[number] = likely
        return Token(ticket=self.ticket, step=number, tokens=fresh, finish=tuple(self.finish), likely=likely)

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return all(self.finish)

    @property
    def step(self) -> int:
        """Number of the token that it waits for, from 0."""
        return len(self.drawn)

    @property
    def reached(self) -> int:
        """Steps that are over: their values are known."""
        return len(self.prompt) - 1 + len(self.drawn) if self.drawn else 0

    @property
    def is_at_token(self) -> bool:
        """Whether its next step makes a token, and nothing else comes before that."""
        return bool(self.drawn) and self.next_step >= len(self.prompt) and self.next_step + 1 >= self.reached

    def stands_since(self, now: float) -> float:
        """Since when the request stands still: `now`, or an earlier time if no token has come since."""
        if self._stood[0] != self.step:
            self._stood = self.step, now
        return self._stood[1]

    def told(self, token: int) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
        """The tokens of a step as the client is told, and why each sequence has ended by then."""
        rows = zip(self.tokens, self.finish, strict=True)
        finish = tuple(["" if token < len(tokens) - 1 else reason for tokens, reason in rows])
        return tuple([row[token] if token < len(row) else None for row in self.tokens]), finish

    def is_news(self, crossed: Crossed) -> bool:
        """Whether the client has not had these tensors; steps that are computed again bring them again."""
        names = tuple(spec.name for spec in crossed.values)
        key = (crossed.device, crossed.peer, crossed.step, names)
        is_new = key not in self.crossed
        self.crossed.add(key)
        return is_new

    def open(self, number: int, slot: int, role: Role, reuse: Reuse | None = None) -> None:
        """Give it its number and its slot, and what it keeps of that; its first step is next."""
        self.number, self.slot, self.reuse = number, slot, reuse
        self.prompt = list(self._prompt_steps(role))
        self.inputs = {}

    def calls(self) -> Iterator[Call]:
        """The steps that begin now: up to the first one whose values are waited for."""
        self.in_flight = True
        while True:
            call = self._call(self.next_step)
            self.next_step += 1
            yield call
            if call[0].phase in ("prefill", "decode"):
                return

    @property
    def kept(self) -> tuple[int, ...]:
        """The tokens whose rows lie in the states of all devices, where later requests may use them."""
        if not self.reusable or not self.over:
            return ()
        behind = self.over - len(self.prompt)
        rows = self.prompt[min(self.over, len(self.prompt)) - 1][0].end[0] + max(0, behind)
        return (*self.reusable, *(int(tokens[0]) for tokens in self.drawn))[:rows]

    def rewind(self, step: int, role: Role) -> Resumption:
        """Go on from a step that is over, or from the next one; from the first on, without rows of others."""
        self.replayed += self.reached - step
        self.next_step, self.in_flight, self.over = step, False, step
        if self.reuse is not None and not step:
            self.reuse, self.inputs = None, padded([self.reusable], role)
            self.open(self.number, self.slot, role)
        before = self._call(step - 1)[0].phase if step else ""
        ends = tuple([call[0].end for call in self.prompt[:step]])
        phase = "decode" if before == REPLAY else before
        return Resumption(self.number, self.slot, self.sampling, self.trace, step, phase, ends)

    def _call(self, step: int) -> Call:
        """A step whose inputs are known, and its inputs.

        The results of all but the last are known as well, so they need not be waited for, but for a few: a device
        keeps room for `MOST_FORCED` steps that it has not come to.
        """
        behind = step - len(self.prompt)
        if behind < 0:
            return self.prompt[step]
        last = self.prompt[-1][0]
        is_waited_for = step + 1 >= self.reached or (behind + 1) % MOST_FORCED == 0
        following = Step(
            request=self.number,
            slot=self.slot,
            step=step,
            phase="decode" if is_waited_for else REPLAY,
            dims={**last.dims, "sequence": 1} if "sequence" in last.dims else last.dims,
            position=tuple([end + behind for end in last.end]),
            length=(1,) * len(last.end),
        )
        return following, {INPUT_IDS: self.drawn[behind].reshape(-1, 1)}

    def _prompt_steps(self, role: Role) -> Iterator[Call]:
        """The steps of the prompt with their inputs: one, or one a part."""
        opening = Opening(self.number, self.sampling, self.trace, self.reuse)
        total, kept = self.dims.get("sequence", 1), 0 if self.reuse is None else self.reuse.rows
        width, given = total - kept, self.inputs
        if kept:
            given = {name: columns(array, role.inputs[name], kept, total) for name, array in given.items()}
        for part, (begin, end, inputs) in enumerate(prompt_parts(given, width, len(self.length), role)):
            whole = end - begin == total
            yield (
                Step(
                    request=self.number,
                    slot=self.slot,
                    step=part,
                    phase=CHUNK if end < width else "prefill",
                    dims=self.dims if whole else {**self.dims, "sequence": end - begin},
                    position=self.position if whole else (kept + begin,),
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
    if submit.values and not submit.prompts:
        _fill_tensors(job, submit, frames, role)
    else:
        _fill_prompts(job, submit, frames, role)
    return job


def _fill_prompts(job: Job, submit: Submit, frames: Sequence[memoryview], role: Role) -> None:
    """Make the first step of prompts: right-padded to one length, each sequence with its own `length`.

    Tensors beside them are the picture or the sound that they speak of.
    """
    check_prompts(submit.prompts, submit.max_new_tokens, role)
    given = read_tensors(submit.values, frames)
    check_placeholders(submit.prompts, given, role)
    lengths = [len(role.model.before_answer(prompt)) for prompt in submit.prompts]
    _fill(job, with_media(padded(submit.prompts, role), given, role), lengths, role)
    if role.model.generates:
        _fill_answer(job, submit, role)


def _fill_answer(job: Job, submit: Submit, role: Role) -> None:
    job.max_new_tokens = submit.max_new_tokens
    ends = () if submit.ignore_eos else role.model.eos_token_ids
    job.stop = frozenset((*ends, *submit.stop))
    job.tokens = [[] for _ in job.length]
    job.finish = ["" for _ in job.length]
    job.shares = submit.reuse and len(submit.prompts) == 1 and not submit.trace
    if submit.reuse and role.model.prefix_reuse and len(submit.prompts) == 1:
        job.reusable = submit.prompts[0]
    _fill_known(job, submit, role)


def _fill_known(job: Job, submit: Submit, role: Role) -> None:
    """Take the tokens that the client has from before."""
    if not submit.known:
        return
    if len(submit.known) != len(job.tokens):
        raise RunError(f"{len(submit.known)} known answers for {len(job.tokens)} prompts", where="known")
    for row in submit.known:
        check_tokens(row, "known", role.model)
    for step in range(max(map(len, submit.known))):
        column = [row[step] if step < len(row) else row[-1] if row else 0 for row in submit.known]
        job.drawn.append(np.array(column, np.int64))
        job.take(column)
    if job.finished or [list(row) for row in submit.known] != job.tokens:
        raise RunError("the known tokens end before their last one, or are complete", where="known")


def _fill_tensors(job: Job, submit: Submit, frames: Sequence[memoryview], role: Role) -> None:
    """Make the first step of a request that brings its tensors; the only one where the model does not generate."""
    if role.takes_tokens and role.model.generates:
        raise RunError("a model that generates text takes prompts, not tensors", hint="Client.generate")
    arrays = with_start(read_tensors(submit.values, frames), role)
    given = arrays.pop("length", None) if role.has_step_inputs else None
    if given is not None and given.dtype.kind not in "iu":
        raise RunError(f"{given.dtype.name} is no type of integers", where="length")
    _fill(job, arrays, None if given is None else [int(length) for length in given.reshape(-1)], role)
    if role.model.generates:
        check_length(max(job.length), "max_new_tokens", submit.max_new_tokens, role.model)
        _fill_answer(job, submit, role)


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
