"""What a client asks for, checked against the model before anything runs, and its way through the steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partc.errors import RunError
from partc.format.build import Model, TensorType
from partc.format.dims import symbols
from partc.format.dtypes import DTYPES, Array
from partc.format.program import CHUNK
from partc.format.role import Role
from partc.runtime.client.text import TextStream
from partc.runtime.core.link import Progress
from partc.runtime.core.sampling import Sampling
from partc.runtime.shell.transport import Origin
from partc.runtime.wire import Fields, Opening, Step, check_values, read_specs, to_array

GENERATION = "text-generation"
_MOST_TOKENS = 2**63
"""What an int64 holds, for models that do not say the size of their vocabulary."""


@dataclass(slots=True, eq=False)
class Job:
    """One request of a client."""

    origin: Origin
    ticket: int
    """The client's number for it."""
    opening: Opening
    submitted: float
    """Seconds on the source's clock, as all times here."""
    progress: Progress
    prompts: list[list[int]] = field(default_factory=list)
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """Of the first step."""
    dims: Mapping[str, int] = field(default_factory=dict)
    position: tuple[int, ...] = ()
    length: tuple[int, ...] = ()
    max_new_tokens: int = 0
    stop: frozenset[int] = frozenset()
    streams: list[TextStream] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    """Per sequence: empty, `stop` or `length`."""
    number: int = -1
    slot: int = -1
    step: int = 0
    """Number of the token that it waits for, from 0."""
    started: float = 0.0
    outputs: Mapping[str, Array] = field(default_factory=dict)
    reports: set[str] = field(default_factory=set)
    """Devices whose timings have not come yet."""

    def take(self, tokens: Sequence[int]) -> tuple[list[int | None], list[str]]:
        """Take one token per sequence; what is new: tokens (None where a sequence has ended) and texts."""
        fresh: list[int | None] = []
        pieces: list[str] = []
        for row, token in enumerate(tokens):
            if self.finish[row]:
                fresh.append(None)
                pieces.append("")
                continue
            self.tokens[row].append(token)
            self.finish[row] = self._verdict(row, token)
            fresh.append(token)
            pieces.append(self._text(row, token))
        return fresh, pieces if self.streams else []

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return all(self.finish)

    def _verdict(self, row: int, token: int) -> str:
        if token in self.stop:
            return "stop"
        return "length" if len(self.tokens[row]) >= self.max_new_tokens else ""

    def _text(self, row: int, token: int) -> str:
        if not self.streams:
            return ""
        piece = self.streams[row].push(token)
        if self.finish[row]:
            piece += self.streams[row].finish()
        self.texts[row] += piece
        return piece


def prompt_steps(job: Job, manifest: Role) -> Iterator[tuple[Step, Mapping[str, Array]]]:
    """The prefill; where the plan has it so, a long prompt of one sequence in several steps of nearly equal length.

    So the devices work on it all at once, each on another part.
    """
    width = job.dims.get("sequence", 1)
    ends = prompt_ends(width, len(job.length), manifest.model)
    if len(ends) == 1 or CHUNK not in manifest.programs:
        step = Step(job.number, job.slot, 0, "prefill", job.dims, job.position, job.length, job.opening)
        yield step, job.inputs
        return
    for part, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
        inputs = {
            name: _columns(array, manifest.inputs[name], start, end) for name, array in job.inputs.items()
        }
        yield (
            Step(
                request=job.number,
                slot=job.slot,
                step=part,
                phase=CHUNK if end < width else "prefill",
                dims={**job.dims, "sequence": end - start},
                position=(start,),
                length=(end - start,),
                opening=None if part else job.opening,
            ),
            inputs,
        )


def prompt_ends(width: int, sequences: int, model: Model) -> list[int]:
    """Where the parts of prompts of `width` tokens end; one part where there are several sequences."""
    size = model.prompt_chunk if sequences == 1 else None
    count = 1 if size is None else math.ceil(width / size)
    return [width * (part + 1) // count for part in range(count)]


def _columns(array: Array, declared: TensorType, start: int, end: int) -> Array:
    """A part of a prompt; what has no axis for its tokens is needed whole by each."""
    if "sequence" not in declared.shape:
        return array
    axis = declared.shape.index("sequence")
    return np.ascontiguousarray(np.take(array, range(start, end), axis))


def fill_prompts(job: Job, fields: Fields, manifest: Role) -> None:
    """Make the first step of prompts: right-padded to one length, each sequence with its own `length`.

    Raises:
        RunError: what is asked for is more than the plan allows, or not this model's task.
    """
    check_prompts(job.prompts, fields["max_new_tokens"], manifest)
    lengths = [len(prompt) for prompt in job.prompts]
    shape = (len(job.prompts), max(lengths))
    ids = np.full(shape, manifest.model.pad_token_id or 0, np.int64)
    for row, prompt in enumerate(job.prompts):
        ids[row, : len(prompt)] = prompt
    arrays = {"input_ids": ids}
    if "token_type_ids" in manifest.inputs:
        arrays["token_type_ids"] = np.zeros(shape, np.int64)
    _fill(job, arrays, lengths, manifest)
    if manifest.model.task == GENERATION:
        _fill_generation(job, fields, manifest)


def fill_tensors(job: Job, fields: Fields, frames: Sequence[memoryview], manifest: Role) -> None:
    """Make the only step of a request that brings its tensors.

    Raises:
        RunError: they are not what the model takes.
    """
    if manifest.model.task == GENERATION:
        raise RunError("a model that generates text takes prompts, not tensors", hint="Client.generate")
    specs = read_specs(fields["values"])
    if len(specs) != len(frames):
        raise RunError(f"{len(specs)} tensors are announced, {len(frames)} came")
    arrays = {}
    for (name, dtype, shape), frame in zip(specs, frames, strict=True):
        if frame.nbytes != DTYPES[dtype].itemsize * math.prod(shape):
            raise RunError(f"{frame.nbytes} bytes are not those of {dtype}{list(shape)}", where=name)
        try:
            arrays[name] = to_array(frame, dtype, shape)
        except (ValueError, OverflowError):  # no elements, but sizes that numpy cannot hold
            raise RunError(f"{list(shape)} is no shape", where=name) from None
    given = arrays.pop("length", None) if manifest.has_step_inputs else None
    if given is not None and given.dtype.kind not in "iu":
        raise RunError(f"{given.dtype.name} is no type of integers", where="length")
    _fill(job, arrays, None if given is None else [int(length) for length in given.reshape(-1)], manifest)


def check_prompts(prompts: Sequence[Sequence[int]], new_tokens: int, manifest: Role) -> None:
    """Hold prompts against the limits of the model; used by the client too, so that nothing runs in vain.

    Raises:
        RunError: naming the prompt and the limit.
    """
    model = manifest.model
    if manifest.model.task == "graph":
        raise RunError("this model takes tensors, not prompts", hint="Client.run")
    if not 1 <= len(prompts) <= model.max_batch:
        hint = "send fewer at once, or compile with a larger max_batch"
        raise RunError(f"{len(prompts)} prompts in one request, at most {model.max_batch}", hint=hint)
    generates = model.task == GENERATION
    if generates and new_tokens < 1:
        raise RunError("at least one token must be asked for", where="max_new_tokens", hint="1 or more")
    if model.uniform_positions and len({len(prompt) for prompt in prompts}) > 1:
        hint = "send them one by one"
        raise RunError("this model takes prompts of equal length only in one request", hint=hint)
    for row, prompt in enumerate(prompts):
        where = f"prompt {row + 1}"
        if not prompt:
            raise RunError("the prompt is empty", where=where, hint="at least one token")
        total = len(prompt) + (new_tokens if generates else 0)
        if total > model.max_sequence:
            asked = f" and {new_tokens} new ones" if generates else ""
            hint = "shorten it, ask for less, or compile with a larger max_sequence"
            message = f"{len(prompt)} tokens{asked} are more than max_sequence, {model.max_sequence}"
            raise RunError(message, where=where, hint=hint)
        if min(prompt) < 0:
            raise RunError(f"token {min(prompt)} is below 0", where=where, hint="token ids count from 0")
        most = _MOST_TOKENS if model.vocab_size is None else model.vocab_size
        if max(prompt) >= most:
            raise RunError(f"token {max(prompt)} is not below vocab_size, {most}", where=where)


def check_tensors(arrays: Mapping[str, Array], manifest: Role) -> dict[str, int]:
    """The sizes that the inputs of a model give to the symbols in their shapes.

    Raises:
        RunError: an input is missing or unknown, or has another type or shape than the model's.
    """
    for name in sorted(set(manifest.inputs) ^ set(arrays)):
        state = "is missing" if name in manifest.inputs else "is unknown"
        raise RunError(f"the input {name!r} {state}", hint=f"inputs: {', '.join(manifest.inputs)}")
    dims: dict[str, int] = {}
    for name, array in arrays.items():
        declared = manifest.inputs[name]
        if len(declared.shape) != array.ndim:
            raise RunError(f"{array.ndim} dimensions, not {len(declared.shape)}", where=name)
        for dim, size in zip(declared.shape, array.shape, strict=True):
            if isinstance(dim, str) and symbols(dim) == {dim}:
                dims.setdefault(dim, size)
    for symbol, size in dims.items():
        if size > manifest.dims[symbol]:
            hint = "send less at once, or compile for more"
            raise RunError(f"{symbol} is {size}, the plan is for at most {manifest.dims[symbol]}", hint=hint)
    specs = [
        (name, dtype_name(array, manifest.inputs[name].dtype), array.shape) for name, array in arrays.items()
    ]
    check_values(specs, [array.nbytes for array in arrays.values()], manifest.inputs, dims)
    return dims


def dtype_name(array: Array, declared: str) -> str:
    """The name of an array's type; the declared one where numpy holds it like that (bfloat16)."""
    return declared if array.dtype == DTYPES[declared] else array.dtype.name


def _fill(job: Job, arrays: dict[str, Array], given: list[int] | None, manifest: Role) -> None:
    job.dims = check_tensors(arrays, manifest)
    job.inputs = arrays
    if manifest.has_step_inputs:
        rows, width = job.dims.get("batch", 1), job.dims.get("sequence", 1)
        lengths = [width] * rows if given is None else given
        job.position = (0,) * len(lengths)
        job.length = tuple(lengths)
        if len(lengths) != rows or not all(1 <= length <= width for length in lengths):
            raise RunError(f"the lengths {lengths} do not fit {rows} sequences of {width}", where="length")


def _fill_generation(job: Job, fields: Mapping[str, Any], manifest: Role) -> None:
    rows = range(len(job.prompts))
    job.max_new_tokens = fields["max_new_tokens"]
    ends = () if fields["ignore_eos"] else manifest.model.eos_token_ids
    job.stop = frozenset((*ends, *fields["stop"]))
    job.tokens = [[] for _ in rows]
    job.texts = ["" for _ in rows]
    job.finish = ["" for _ in rows]


def opening_of(fields: Fields) -> Opening:
    """What all devices are told of a request.

    Raises:
        RunError: the sampling parameters are unknown or out of range.
    """
    try:
        sampling = Sampling(**fields["sampling"])
    except TypeError:
        raise RunError("temperature, top_k, top_p and seed are expected", where="sampling") from None
    return Opening(sampling.as_fields(), fields["trace"])
