"""The steps that a plan is made for: a prompt and a decoded token, with the sizes that symbols have in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from partc.format.tasks import SOURCE
from partc.ir.graph import ModelInfo


@dataclass(frozen=True)
class Step:
    """One kind of step of the workload: a prefill, or one decoded token."""

    name: str
    sizes: Mapping[str, int]
    """Value of every symbol."""
    context: int
    """Tokens that are valid in the caches when the step ends."""


def workload(info: ModelInfo) -> list[Step]:
    """The steps that the plan is made for: one batch of prompts, then a token of each halfway through the answer.

    Where a source is read before, the workload's prompt is that, and the prompt itself the tokens that answers begin
    behind. Symbols other than `batch`, `sequence` and `source` stand for the largest value that the model gives them.
    """
    length = info.dims.get("sequence", info.max_sequence)
    prompt = len(info.start_tokens) or max(1, min(info.prompt, length))
    batch = info.batch or 1
    dims = dict(info.dims)
    if SOURCE in dims:
        dims[SOURCE] = max(1, min(info.prompt, dims[SOURCE]))
    prefill = Step("prefill", {**dims, "batch": batch, "sequence": prompt}, prompt)
    if not info.has_states:
        return [prefill]
    context = max(1, min(prompt + info.generate // 2, info.max_sequence))
    return [prefill, Step("decode", {**dims, "batch": batch, "sequence": 1}, context)]


def settings(info: ModelInfo) -> dict[str, str | int]:
    """The settings of a user that times depend on, by their names in model.yaml."""
    return {
        "model": info.name,
        "dtype": info.dtype,
        "max_sequence": info.max_sequence,
        "prompt": info.prompt,
        "generate": info.generate,
        "batch": info.batch or 1,
    }


def of_batch(info: ModelInfo, batch: int) -> ModelInfo:
    """The model with its batch decided: the largest, and the one that the plan is best for."""
    return replace(info, max_batch=batch, batch=batch, batches=(), dims={**info.dims, "batch": batch})


def largest(info: ModelInfo, name: str) -> Step:
    """The step of that name in which every size is as large as the model allows; memory must hold then."""
    sizes = {"batch": info.max_batch, "sequence": info.max_sequence, **info.dims}
    return Step(name, {**sizes, "sequence": 1} if name == "decode" else sizes, info.max_sequence)
