"""The request that a client's message asks for, read and checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.messages import Submit
from partc.format.role import Role
from partc.runtime.core.events import Origin
from partc.runtime.core.liveness import Progress
from partc.runtime.core.source.drafts import Drafts
from partc.runtime.core.source.inputs import (
    check_length,
    check_placeholders,
    check_prompts,
    check_tensors,
    padded,
    read_tensors,
    with_media,
    with_start,
)
from partc.runtime.core.source.job import Job
from partc.runtime.core.source.window import Window
from partc.runtime.core.tokens import check_tokens


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
    if submit.drafts and len(job.length) == 1 and not submit.trace and role.guesses:
        check_tokens(submit.expected, "expected", role.model)
        prompt = submit.prompts[0] if submit.prompts else ()
        job.window = Window(Drafts(prompt, submit.expected))
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
        if job.window is not None:
            job.window.drafts.add(column[0])
    if job.finished or [list(row) for row in submit.known] != job.tokens:
        raise RunError("the known tokens end before their last one, or are complete", where="known")


def _fill_tensors(job: Job, submit: Submit, frames: Sequence[memoryview], role: Role) -> None:
    """Make the first step of a request that brings its tensors; the only one where the model does not generate."""
    if role.takes_tokens and role.model.generates:
        raise RunError("a model that generates text takes prompts, not tensors", hint="send prompts")
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
