"""What a cut model is held against: the original, or for a quantised build the uncut model of the same quantisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.runtime.client.results import Result
from partc.verify.compare import nearest, shapes_to_watch
from partc.verify.inputs import Given
from partc.verify.reference import Reference
from partc.verify.report import ORIGINAL, TOLERANCES

Array = npt.NDArray[Any]
Place = tuple[str, str, str]
"""(value, sender, receiver)."""
Errors = dict[Place, tuple[float | None, float]]
"""The largest error at a cut, None where there is nothing to compare with, and the largest value there."""


class Right(ABC):
    """What is right."""

    what: str
    """`the original`, for tables."""
    tolerance: float
    """Largest error that counts as equal for values of magnitude 1."""

    @abstractmethod
    def generate(self, result: Result) -> tuple[list[int], Array]:
        """The tokens for a request's prompt, and the logits [1, tokens, vocabulary] that they were taken of."""

    @abstractmethod
    def generate_batch(self, result: Result) -> list[list[int]]:
        """The tokens for every prompt of a batch."""

    @abstractmethod
    def outputs(self, given: Given) -> dict[str, Array]:
        """The outputs of one step by name."""

    @abstractmethod
    def cuts_of_generation(self, result: Result, crossed: Mapping[Place, Array]) -> Errors:
        """Errors of what crossed links in a request whose tokens are all right; after all other calls."""

    @abstractmethod
    def cuts_of_step(self, given: Given, crossed: Mapping[Place, Array]) -> Errors:
        """As `cuts_of_generation`, for a request of one step."""


class Original(Right):
    """The model in transformers, or an ONNX file in onnxruntime.

    A value that crosses a link is compared with the tensors that the original computes on its way: the nearest one of
    the same sizes must be within tolerance. So neither names nor partc's own graph are trusted. For decoders the
    original runs once over the whole sequence without a cache, the ring in a prefill and one step a token, and rows
    are compared with rows: the caches are part of what is proven.
    """

    what = ORIGINAL

    def __init__(self, reference: Reference, dtype: str) -> None:
        self._reference = reference
        self.tolerance = TOLERANCES.get(dtype, TOLERANCES["float32"])

    def generate(self, result: Result) -> tuple[list[int], Array]:
        """See `Right`."""
        prompt = list(result.prompts[0])
        tokens = self._reference.generate(prompt, len(result.tokens[0]))
        logits = self._reference.outputs(_whole([*prompt, *tokens]))["logits"]
        return tokens, logits[:, len(prompt) - 1 :]

    def generate_batch(self, result: Result) -> list[list[int]]:
        """What each prompt gives alone: a batch must not change that."""
        pairs = zip(result.prompts, result.tokens, strict=True)
        return [self._reference.generate(prompt, len(found)) for prompt, found in pairs]

    def outputs(self, given: Given) -> dict[str, Array]:
        """See `Right`."""
        return self._reference.outputs(given.original)

    def cuts_of_generation(self, result: Result, crossed: Mapping[Place, Array]) -> Errors:
        """See `Right`."""
        return self._cuts(_whole([*result.prompts[0], *result.tokens[0]]), crossed)

    def cuts_of_step(self, given: Given, crossed: Mapping[Place, Array]) -> Errors:
        """See `Right`."""
        return self._cuts(given.original, crossed)

    def _cuts(self, inputs: Mapping[str, Array], crossed: Mapping[Place, Array]) -> Errors:
        floats = {place: array for place, array in crossed.items() if np.issubdtype(array.dtype, np.floating)}
        length = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
        seen = self._reference.activations(inputs, shapes_to_watch(floats.values(), length))
        return {place: nearest(array, seen) for place, array in floats.items()}


def _whole(tokens: list[int]) -> dict[str, Array]:
    """The inputs of all steps at once; nothing follows the last token."""
    return {"input_ids": np.array([tokens[:-1]], np.int64)}
