"""The built-in prompts and tensors of a verification: the same ones every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.format.build import Model
from partc.format.dims import evaluate
from partc.format.role import Role
from partc.format.tasks import INPUT_IDS, SOURCE
from partc.runtime.client.results import Result

Array = npt.NDArray[Any]

Prompt = Sequence[int] | Mapping[str, Array]
"""Token ids, or tensors: of a sound, or of a picture or a sound with the token ids among which it goes."""

LENGTHS = (1, 7, 33)
"""Tokens of the built-in prompts; their ids are drawn with a seed."""
_SEED = 20240707


@dataclass(frozen=True)
class StepRequest:
    """A request of one step."""

    what: str
    """`7 tokens`, `random input 1`."""
    ring: Mapping[str, Array]
    """Inputs for the ring, `length` among them where it reads tokens."""
    original: Mapping[str, Array]
    """Inputs for the original, `attention_mask` instead."""


@dataclass(frozen=True)
class Answer:
    """The tokens for one prompt."""

    prompt: Prompt
    result: Result

    @property
    def tokens(self) -> list[int]:
        """Those that were generated."""
        return list(self.result.tokens[0])

    @property
    def ids(self) -> list[int]:
        """The prompt of a model that reads tokens."""
        ids, _ = split_prompt(self.prompt)
        return ids

    @property
    def what(self) -> str:
        """`prompt of 7 tokens`, `random sound`, `7 tokens and a random input`."""
        ids, tensors = split_prompt(self.prompt)
        if not ids:
            return "random sound"
        return (
            f"{count_tokens(len(ids))} and a random input"
            if tensors
            else f"prompt of {count_tokens(len(ids))}"
        )


def split_prompt(prompt: Prompt) -> tuple[list[int], dict[str, Array]]:
    """The token ids of a prompt, none where there are only tensors, and the tensors."""
    if not isinstance(prompt, Mapping):
        return list(prompt), {}
    ids = prompt.get(INPUT_IDS)
    return [] if ids is None else ids[0].tolist(), {k: v for k, v in prompt.items() if k != INPUT_IDS}


@dataclass(frozen=True)
class Requests:
    """The prompts of a user, and the tokens to generate."""

    texts: Sequence[str] = ()
    """Prompts; none: the built-in ones."""
    tokens: int = 64
    """New tokens for each prompt."""

    def count(self, model: Model) -> int:
        """The new tokens for which a prompt leaves room; built-in prompts take half of max_sequence."""
        room = model.max_sequence - 1 if self.texts else max(1, model.max_sequence // 2)
        return min(self.tokens, room)


def prompts_for(asked: Requests, role: Role) -> list[Any]:
    """The prompts of a user, or the built-in ones, by what the model reads."""
    if asked.texts:
        return list(asked.texts)
    room = asked.count(role.model)
    if role.model.placeholder_token is not None:
        return list(built_in_media(role, room))
    return list(built_in_prompts(role, room) if role.takes_tokens else built_in_sounds(role))


def asked_by(prompt: Any) -> dict[str, Any]:
    """The arguments of `Client.submit` that a text, token ids, or tensors stand for."""
    if isinstance(prompt, str):
        return {"prompts": [prompt]}
    ids, tensors = split_prompt(prompt)
    return {"prompts": [ids] if ids else (), "inputs": tensors or None}


def built_in_sounds(role: Role) -> list[Mapping[str, Array]]:
    """Noise, for a model that reads a sound before it answers."""
    return [_drawn(role, seed, batch=1) for seed in range(3)]


def built_in_prompts(role: Role, room: int) -> list[list[int]]:
    """Prompts of token ids, as long as `room` for an answer lets them be in max_sequence, or a source may be."""
    most = role.dims.get(SOURCE, role.model.max_sequence - room)
    return [_ids(length, role.model) for length in _lengths(most)]


def built_in_media(role: Role, room: int) -> list[Prompt]:
    """Token ids with a random picture or sound among them, and the longest without; see `built_in_prompts`."""
    model = role.model
    most = model.max_sequence - room - model.placeholders
    prompts: list[Prompt] = []
    for seed, length in enumerate(_lengths(most)):
        ids = [token if token != model.placeholder_token else 0 for token in _ids(length, model)]
        place = length // 2
        among = [*ids[:place], *[model.placeholder_token or 0] * model.placeholders, *ids[place:]]
        tensors = {name: array for name, array in _drawn(role, seed, batch=1).items() if name != INPUT_IDS}
        prompts.append({INPUT_IDS: np.array([among], np.int64), **tensors})
    return [*prompts, ids]


def built_in_requests(role: Role) -> list[StepRequest]:
    """Requests to a model that does not generate."""
    if not role.takes_tokens:
        drawn = [_drawn(role, seed, role.model.max_batch) for seed in range(3)]
        return [
            StepRequest(f"random input {number + 1}", values, values) for number, values in enumerate(drawn)
        ]
    lengths = _lengths(role.model.max_sequence)
    batches = [[length] for length in lengths]
    if role.model.max_batch > 1 and len(lengths) > 1:
        batches.append(lengths[-2:])  # unequal: padding must be hidden
    return [_sentences(role, batch) for batch in batches]


def count_tokens(count: int) -> str:
    """`1 token`, `7 tokens`."""
    return f"{count} token{'s' if count > 1 else ''}"


def _lengths(most: int) -> list[int]:
    return list(dict.fromkeys(min(length, max(1, most)) for length in LENGTHS))


def _ids(length: int, model: Model) -> list[int]:
    rng = np.random.default_rng([_SEED, length])
    return [int(token) for token in rng.integers(0, model.vocab_size or 2, length)]


def _sentences(role: Role, lengths: Sequence[int]) -> StepRequest:
    """A batch of one or more rows, padded on the right."""
    mask = (np.arange(max(lengths))[None, :] < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.full(mask.shape, role.model.pad_token_id or 0, np.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = _ids(length, role.model)
    inputs: dict[str, Array] = {"input_ids": ids}
    for name in role.inputs:
        if name != "input_ids":
            inputs[name] = np.arange(mask.size, dtype=np.int64).reshape(mask.shape) % 2
    listed = ", ".join(str(length) for length in lengths)
    what = f"batch of {listed} tokens" if len(lengths) > 1 else count_tokens(lengths[0])
    return StepRequest(
        what, {**inputs, "length": np.array(lengths, np.int64)}, {**inputs, "attention_mask": mask}
    )


def _drawn(role: Role, seed: int, batch: int) -> dict[str, Array]:
    """Tensors for a model that reads no tokens; those that it begins its answers behind are none of them."""
    rng = np.random.default_rng([_SEED, seed])
    values: dict[str, Array] = {}
    own = {
        name: kind for name, kind in role.inputs.items() if name != INPUT_IDS or not role.model.start_tokens
    }
    dims = {**role.dims, "batch": batch} if "batch" in role.dims else role.dims
    for name, kind in own.items():
        shape = [evaluate(dim, dims) for dim in kind.shape]
        numbers = rng.standard_normal(shape) if kind.dtype.startswith("float") else rng.integers(0, 2, shape)
        values[name] = numbers.astype(kind.dtype)
    return values
