"""Runs the ring of a build and the original on the same inputs.

A value that crosses a link is compared with the tensors that the original computes on its way: the nearest one of
the same sizes must be within tolerance. So neither names nor partc's own graph are trusted. For decoders the
original runs once over the whole sequence without a cache, the ring in a prefill and one step a token, and rows are
compared with rows: the caches are part of what is proven.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.dims import evaluate
from partc.errors import BundleError
from partc.pipeline.contract import Progress, no_progress
from partc.runtime.client import Client, source_manifest
from partc.runtime.launch import launch_local
from partc.runtime.manifest import Manifest
from partc.runtime.results import Crossing, Result
from partc.verify.origin import read_origin
from partc.verify.reference import Reference, open_reference
from partc.verify.report import TOLERANCES, Case, CutError, Report

Array = npt.NDArray[Any]

LENGTHS = (1, 7, 33)
"""Tokens of the built-in prompts; their ids are drawn with a seed."""
_SEED = 20240707


def verify_build(
    build: Path,
    prompts: Sequence[str] = (),
    tokens: int = 64,
    *,
    model: str | None = None,
    progress: Progress = no_progress,
) -> Report:
    """Compare the ring of `build`, started on this machine, with what it was compiled from.

    Args:
        build: what compile wrote.
        prompts: texts instead of the built-in prompts.
        tokens: greedy tokens a request, fewer if max_sequence asks for it.
        model: the original, where it has moved.
        progress: called as cases are done.

    Raises:
        BundleError, ConfigError, ModelError: the build or the original cannot be opened.
        RunError: the ring failed.
    """
    config = read_origin(build, model)
    built = source_manifest(build).model
    if (config.task, config.dtype) != (built.task, built.dtype):
        raise BundleError(
            f"the build is for {built.task} in {built.dtype}, this model for {config.task} in {config.dtype}",
            where=str(build),
            hint="name the model that it was compiled from: --model model.yaml",
        )
    progress("load original", 0, 1)
    reference = open_reference(config)
    progress("load original", 1, 1)
    with launch_local(build) as ring, ring.client() as client:
        if client.manifest.model.task == "text-generation":
            return _Generation(client, reference, progress).run(prompts, tokens)
        return _OneStep(client, reference, progress).run(prompts)


class _Check:
    """What both kinds of models share."""

    def __init__(self, client: Client, reference: Reference, progress: Progress) -> None:
        self.client = client
        self.reference = reference
        self.progress = progress
        self.manifest: Manifest = client.manifest
        self.cases: list[Case] = []
        self.cuts: dict[tuple[str, str, str], tuple[float, float]] = {}
        self.largest = 0.0

    def report(self) -> Report:
        tolerance = TOLERANCES.get(self.manifest.model.dtype, TOLERANCES["float32"])
        cuts = [CutError(*place, *errors) for place, errors in self.cuts.items()]
        return Report(self.cases, cuts, tolerance, self.largest)

    def lengths(self, room: int) -> list[int]:
        """Lengths of the built-in prompts, as far as they leave room in max_sequence."""
        most = max(1, self.manifest.model.max_sequence - room)
        return list(dict.fromkeys(min(length, most) for length in LENGTHS))

    def ids(self, length: int) -> list[int]:
        rng = np.random.default_rng([_SEED, length])
        vocabulary = self.manifest.model.vocab_size or 2
        return [int(token) for token in rng.integers(0, vocabulary, length)]

    def error(self, found: Array, right: Array) -> float:
        """Largest difference of an output, and notes how large outputs are."""
        self.largest = max(self.largest, float(np.abs(right).max(initial=0.0)))
        return difference(found, right)

    def compare_cuts(
        self, crossed: Mapping[tuple[str, str, str], Array], inputs: Mapping[str, Array]
    ) -> None:
        """The nearest tensor of the original for every value that crossed a link."""
        floats = {place: array for place, array in crossed.items() if np.issubdtype(array.dtype, np.floating)}
        length = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
        seen = self.reference.activations(inputs, shapes_to_watch(floats.values(), length))
        for place, array in floats.items():
            error, size = nearest(array, seen)
            before = self.cuts.get(place, (0.0, 0.0))
            self.cuts[place] = (max(before[0], error), max(before[1], size))


class _Generation(_Check):
    """Decoders: tokens, logits and cuts over all steps."""

    def run(self, texts: Sequence[str], tokens: int) -> Report:
        count = min(tokens, self.manifest.model.max_sequence - 1)
        prompts: list[Any] = list(texts) or [self.ids(length) for length in self.lengths(count)]
        requests = [
            self.client.submit([p], max_new_tokens=count, ignore_eos=True, trace=True) for p in prompts
        ]
        for number, request in enumerate(requests):
            self.progress("compare requests", number, len(requests) + 1)
            self.compare(request.result())
        if (
            self.manifest.model.max_batch > 1
            and len(prompts) > 1
            and not self.manifest.model.uniform_positions
        ):
            self.compare_batch(prompts[: self.manifest.model.max_batch], count)
        self.progress("compare requests", len(requests) + 1, len(requests) + 1)
        return self.report()

    def compare(self, result: Result) -> None:
        prompt, found = list(result.prompts[0]), list(result.tokens[0])
        right = self.reference.generate(prompt, len(found))
        whole = np.array([[*prompt, *right[:-1]]], np.int64)
        inputs = {"input_ids": whole}
        logits = self.reference.outputs(inputs)["logits"][:, len(prompt) - 1 :]
        crossed = join_steps(result.trace)
        sampled = [array for place, array in crossed.items() if place[1] == place[2]]
        error = self.error(sampled[0], logits) if sampled else float("inf")
        what = f"prompt of {len(prompt)} token{'s' if len(prompt) > 1 else ''}"
        self.cases.append(Case(what, len(right), _same(found, right), error))
        links = {place: array for place, array in crossed.items() if place[1] != place[2]}
        if found == right:
            self.compare_cuts(links, inputs)

    def compare_batch(self, prompts: Sequence[Any], count: int) -> None:
        """Prompts of unequal length in one batch give the tokens that each gives alone."""
        result = self.client.generate(prompts, count, ignore_eos=True)
        identical = total = 0
        for prompt, found in zip(result.prompts, result.tokens, strict=True):
            right = self.reference.generate(prompt, len(found))
            identical += _same(found, right)
            total += len(right)
        lengths = ", ".join(str(len(prompt)) for prompt in result.prompts)
        self.cases.append(Case(f"batch of prompts of {lengths} tokens", total, identical, 0.0))


class _OneStep(_Check):
    """Encoders, classifiers and any other graph: outputs and cuts of one step."""

    def run(self, texts: Sequence[str]) -> Report:
        requests = list(self.inputs(texts))
        for number, (what, inputs, original) in enumerate(requests):
            self.progress("compare requests", number, len(requests))
            result = self.client.submit(inputs=inputs, trace=True).result()
            right = self.reference.outputs(original)
            valid = original.get("attention_mask")
            errors = [self.error(*_valid_rows(valid, a, right[name])) for name, a in result.outputs.items()]
            self.cases.append(Case(what, None, None, max(errors, default=float("inf"))))
            if valid is None or valid.all():
                self.compare_cuts(join_steps(result.trace), original)
        self.progress("compare requests", len(requests), len(requests))
        return self.report()

    def inputs(self, texts: Sequence[str]) -> list[tuple[str, dict[str, Array], dict[str, Array]]]:
        """(what it is, inputs for the ring, inputs for the original) of every case."""
        if self.manifest.model.task == "graph":
            drawn = [self.drawn(seed) for seed in range(3)]
            return [(f"random input {number + 1}", values, values) for number, values in enumerate(drawn)]
        lengths = self.lengths(0)
        batches = [[length] for length in lengths]
        if self.manifest.model.max_batch > 1 and len(lengths) > 1:
            batches.append(lengths[-2:])  # unequal: padding must be hidden
        return [self.sentences(batch) for batch in batches]

    def sentences(self, lengths: Sequence[int]) -> tuple[str, dict[str, Array], dict[str, Array]]:
        """A batch of one or more rows, padded on the right."""
        mask = (np.arange(max(lengths))[None, :] < np.array(lengths)[:, None]).astype(np.int64)
        ids = np.full(mask.shape, self.manifest.model.pad_token_id or 0, np.int64)
        for row, length in enumerate(lengths):
            ids[row, :length] = self.ids(length)
        given: dict[str, Array] = {"input_ids": ids}
        for name in self.manifest.inputs:
            if name != "input_ids":
                given[name] = np.arange(mask.size, dtype=np.int64).reshape(mask.shape) % 2
        what = f"{lengths[0]} token{'s' if lengths[0] > 1 else ''}"
        what = (
            what if len(lengths) == 1 else f"batch of {', '.join(str(length) for length in lengths)} tokens"
        )
        return what, {**given, "length": np.array(lengths, np.int64)}, {**given, "attention_mask": mask}

    def drawn(self, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng([_SEED, seed])
        values: dict[str, Array] = {}
        for name, kind in self.manifest.inputs.items():
            shape = [evaluate(dim, self.manifest.dims) for dim in kind.shape]
            numbers = (
                rng.standard_normal(shape) if kind.dtype.startswith("float") else rng.integers(0, 2, shape)
            )
            values[name] = numbers.astype(kind.dtype)
        return values


def _valid_rows(mask: Array | None, *arrays: Array) -> list[Array]:
    """Without the rows behind the end of a sentence, which mean nothing; other outputs as they are."""
    if mask is None:
        return list(arrays)
    return [array[mask == 1] if array.shape[:2] == mask.shape else array for array in arrays]


def shapes_to_watch(arrays: Iterable[Array], length: int) -> set[tuple[int, ...]]:
    """Sizes of the original's tensors that may match: those of `arrays`, also over a whole sequence of `length`.

    Behind the choice of the last rows a value has a row a step only.
    """
    shapes = {array.shape for array in arrays}
    return shapes | {(shape[0], length, *shape[2:]) for shape in shapes if len(shape) > 2}


def difference(found: Array, right: Array) -> float:
    """The largest absolute difference; infinite where the sizes differ or either holds what is no number."""
    if found.shape != right.shape:
        return float("inf")
    error = float(np.abs(found.astype(np.float64) - right).max(initial=0.0))
    return error if np.isfinite(error) else float("inf")


def nearest(array: Array, seen: Iterable[Array]) -> tuple[float, float]:
    """The largest difference to the nearest tensor of the same sizes, and the largest value of that tensor.

    Of a tensor with more rows the last ones are taken.
    """
    best = (float("inf"), 0.0)
    for other in seen:
        rows = other[:, -array.shape[1] :] if array.ndim > 2 and other.ndim > 2 else other
        if rows.shape == array.shape:
            best = min(best, (difference(array, rows), float(np.abs(rows).max(initial=0.0))))
    return best


def _same(found: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens are identical from the first on."""
    pairs = enumerate(zip(found, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(found), len(right)))


def join_steps(trace: Sequence[Crossing]) -> dict[tuple[str, str, str], Array]:
    """(value, sender, receiver) → the rows of all steps of a request for one sequence, one behind the other."""
    pieces: dict[tuple[str, str, str], list[Array]] = {}
    for crossing in sorted(trace, key=lambda item: item.step):
        for name, array in crossing.values.items():
            pieces.setdefault((name, crossing.peer, crossing.device), []).append(array)
    return {place: np.concatenate(arrays, axis=_row_axis(arrays[-1])) for place, arrays in pieces.items()}


def _row_axis(step: Array) -> int:
    """The axis of the sequence: the last one before the features that has size 1 in a step of one token.

    It is 1 in [batch, sequence, hidden], 0 where a model makes rows of both, 2 where it keeps several streams.
    """
    ones = [axis for axis, size in enumerate(step.shape[:-1]) if size == 1]
    return ones[-1] if ones else 0
