"""Checks of clients' requests against the model, before anything runs; and prompts in parts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np

from partc.errors import RunError
from partc.format.build import Model, TensorType
from partc.format.dims import evaluate, symbols
from partc.format.dtypes import DTYPES, Array
from partc.format.frames import to_array
from partc.format.message_parts import TensorSpec
from partc.format.program import CHUNK
from partc.format.prompt_steps import steps_of
from partc.format.role import Role
from partc.format.tasks import INPUT_IDS, SOURCE, SOURCE_IDS, SOURCE_LENGTH
from partc.runtime.core.step import check_specs
from partc.runtime.core.tokens import check_tokens


def check_prompts(prompts: Sequence[Sequence[int]], new_tokens: int, role: Role) -> None:
    """Hold prompts against the limits of the model; used by the client too, so that nothing runs in vain.

    Raises:
        RunError: naming the prompt and the limit.
    """
    model = role.model
    if not role.takes_tokens:
        raise RunError("this model takes tensors, not prompts", hint="send tensors for its inputs")
    if not 1 <= len(prompts) <= model.max_batch:
        hint = "send fewer at once, or compile with a larger max_batch"
        raise RunError(f"{len(prompts)} prompts in one request, at most {model.max_batch}", hint=hint)
    if model.generates and new_tokens < 1:
        raise RunError("at least one token must be asked for", where="max_new_tokens", hint="1 or more")
    if model.uniform_positions and not model.start_tokens and len({len(prompt) for prompt in prompts}) > 1:
        hint = "send them one by one"
        raise RunError("this model takes prompts of equal length only in one request", hint=hint)
    for row, prompt in enumerate(prompts):
        where = f"prompt {row + 1}"
        if not prompt:
            raise RunError("the prompt is empty", where=where, hint="at least one token")
        most = role.dims.get(SOURCE)
        if most is not None and len(prompt) > most:
            hint = "shorten it, or compile with a larger max_source"
            raise RunError(f"{len(prompt)} tokens are more than max_source, {most}", where=where, hint=hint)
        check_length(len(model.before_answer(prompt)), where, new_tokens, model)
        check_tokens(prompt, where, model)


def check_placeholders(prompts: Sequence[Sequence[int]], given: Collection[str], role: Role) -> None:
    """Hold the placeholders of prompts against the picture or the sound that comes with them, or does not.

    Raises:
        RunError: there are too few or too many, or the model takes nothing besides its prompt.
    """
    model = role.model
    if model.placeholder_token is None:
        if given:
            message = "a model that generates text takes prompts, not tensors"
            raise RunError(message, hint="send prompts")
        return
    wanted = model.placeholders if given else 0
    for row, prompt in enumerate(prompts):
        found = sum(token == model.placeholder_token for token in prompt)
        if found != wanted:
            takes = (
                f"what is given takes {wanted}" if given else "nothing is given that would take their place"
            )
            message = f"it has the token {model.placeholder_token} {found} times, and {takes}"
            raise RunError(message, where=f"prompt {row + 1}", hint="partc run writes them: --image, --audio")


def check_length(tokens: int, where: str, new_tokens: int, model: Model) -> None:
    """Hold the tokens that an answer begins behind, and the answer, against the longest sequence.

    Raises:
        RunError: they are too many.
    """
    if tokens + (new_tokens if model.generates else 0) > model.max_sequence:
        asked = f" and {new_tokens} new ones" if model.generates else ""
        hint = "shorten it, ask for less, or compile with a larger max_sequence"
        message = f"{tokens} tokens{asked} are more than max_sequence, {model.max_sequence}"
        raise RunError(message, where=where, hint=hint)


def check_tensors(arrays: Mapping[str, Array], role: Role) -> dict[str, int]:
    """The sizes that the inputs of a model give to the symbols in their shapes.

    Raises:
        RunError: an input is missing or unknown, or has another type or shape than the model's.
    """
    for name in sorted(set(role.inputs) ^ set(arrays)):
        state = "is missing" if name in role.inputs else "is unknown"
        raise RunError(f"the input {name!r} {state}", hint=f"inputs: {', '.join(role.inputs)}")
    dims: dict[str, int] = {}
    for name, array in arrays.items():
        declared = role.inputs[name]
        if len(declared.shape) != array.ndim:
            raise RunError(f"{array.ndim} dimensions, not {len(declared.shape)}", where=name)
        for dim, size in zip(declared.shape, array.shape, strict=True):
            if isinstance(dim, str) and symbols(dim) == {dim}:
                dims.setdefault(dim, size)
    for symbol, size in dims.items():
        if size > role.dims[symbol]:
            hint = "send less at once, or compile for more"
            raise RunError(f"{symbol} is {size}, the plan is for at most {role.dims[symbol]}", hint=hint)
    check_specs(specs_of(arrays, role.inputs), role.inputs, dims)
    return dims


def specs_of(arrays: Mapping[str, Array], types: Mapping[str, TensorType]) -> tuple[TensorSpec, ...]:
    """The descriptions of some tensors whose declared types are `types`."""
    return tuple(
        TensorSpec(name, dtype_name(array, types[name].dtype), array.shape) for name, array in arrays.items()
    )


def dtype_name(array: Array, declared: str) -> str:
    """The name of an array's type; the declared one where numpy holds it like that (bfloat16)."""
    return declared if array.dtype == DTYPES[declared] else array.dtype.name


def read_tensors(specs: Sequence[TensorSpec], frames: Sequence[memoryview]) -> dict[str, Array]:
    """The tensors of a request, one a frame.

    Raises:
        RunError: the frames are not what is announced.
    """
    if len(specs) != len(frames):
        raise RunError(f"{len(specs)} tensors are announced, {len(frames)} came")
    arrays = {}
    for spec, frame in zip(specs, frames, strict=True):
        if frame.nbytes != DTYPES[spec.dtype].itemsize * math.prod(spec.shape):
            message = f"{frame.nbytes} bytes are not those of {spec.dtype}{list(spec.shape)}"
            raise RunError(message, where=spec.name)
        try:
            arrays[spec.name] = to_array(frame, spec.dtype, spec.shape)
        except (ValueError, OverflowError):  # no elements, but sizes that numpy cannot hold
            raise RunError(f"{list(spec.shape)} is no shape", where=spec.name) from None
    return arrays


def padded(prompts: Sequence[Sequence[int]], role: Role) -> dict[str, Array]:
    """The inputs of a model for prompts: right-padded to one length; a source, where the model reads one before."""
    shape = (len(prompts), max(map(len, prompts)))
    ids = np.full(shape, role.model.pad_token_id or 0, np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = prompt
    if SOURCE_IDS in role.inputs:
        lengths = np.array([len(prompt) for prompt in prompts], np.int64)
        return with_start({SOURCE_IDS: ids, SOURCE_LENGTH: lengths}, role)
    arrays = {INPUT_IDS: ids}
    if "token_type_ids" in role.inputs:
        arrays["token_type_ids"] = np.zeros(shape, np.int64)
    return arrays


def with_media(arrays: Mapping[str, Array], given: Mapping[str, Array], role: Role) -> dict[str, Array]:
    """The inputs for prompts with those of a picture or a sound.

    Where none is given it is a blank one, which no token reads.
    """
    if role.model.placeholder_token is None:
        return dict(arrays)
    blank = {
        name: np.zeros([evaluate(dim, role.dims) for dim in kind.shape], DTYPES[kind.dtype])
        for name, kind in role.inputs.items()
        if name not in arrays
    }
    return {**arrays, **(given or blank)}


def with_start(arrays: Mapping[str, Array], role: Role) -> dict[str, Array]:
    """The inputs of a model with the tokens that its answers begin behind, where it reads a source before."""
    start = role.model.start_tokens
    if not start or not arrays:
        return dict(arrays)
    rows = len(next(iter(arrays.values())))
    return {**arrays, INPUT_IDS: np.tile(np.array(start, np.int64), (rows, 1))}


def prompt_ends(width: int, sequences: int, model: Model) -> list[int]:
    """The ends of the parts of prompts of `width` tokens; one part where there are several sequences."""
    if model.prompt_steps and sequences == 1:
        return list(accumulate(steps_of(width, model.prompt_steps)))
    size = model.prompt_chunk if sequences == 1 else None
    count = 1 if size is None else math.ceil(width / size)
    return [width * (part + 1) // count for part in range(count)]


def prompt_parts(
    inputs: Mapping[str, Array], width: int, sequences: int, role: Role
) -> Iterator[tuple[int, int, Mapping[str, Array]]]:
    """(begin, end, inputs) of each part of a prompt; where the build has it so, there are several.

    Devices of a ring then work on it at the same time, each on another part; and each part has a size that there is
    code for.
    """
    ends = prompt_ends(width, sequences, role.model)
    if len(ends) == 1 or CHUNK not in role.programs:
        yield 0, width, inputs
        return
    for begin, end in zip((0, *ends), ends, strict=False):
        yield (
            begin,
            end,
            {name: columns(array, role.inputs[name], begin, end) for name, array in inputs.items()},
        )


def columns(array: Array, declared: TensorType, begin: int, end: int) -> Array:
    """A part of a prompt; an input without an axis for its tokens goes whole into each."""
    if "sequence" not in declared.shape:
        return array
    axis = declared.shape.index("sequence")
    return np.ascontiguousarray(np.take(array, range(begin, end), axis))
