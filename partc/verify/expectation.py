"""The results that a cut model must give: those of the original, or of the uncut model of the same quantisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.runtime.client.results import Result
from partc.verify.compare import nearest, shapes_to_watch
from partc.verify.inputs import StepRequest
from partc.verify.reference import Reference
from partc.verify.report import ORIGINAL, TOLERANCES

Array = npt.NDArray[Any]
Place = tuple[str, str, str]
"""(value, sender, receiver)."""
Errors = dict[Place, tuple[float | None, float]]
"""The largest error at a cut, None where there is nothing to compare with, and the largest value there."""


class Expectation(ABC):
    """The results that a cut model has to give."""

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
    def outputs(self, request: StepRequest) -> dict[str, Array]:
        """The outputs of one step by name."""

    @abstractmethod
    def cuts_of_generation(self, result: Result, crossed: Mapping[Place, Array]) -> Errors:
        """Errors of the values that crossed links in a request whose tokens are as expected; comes last."""

    @abstractmethod
    def cuts_of_step(self, request: StepRequest, crossed: Mapping[Place, Array]) -> Errors:
        """The same as `cuts_of_generation`, for a request of one step."""


class Original(Expectation):
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
        """See `Expectation`."""
        prompt = list(result.prompts[0])
        tokens = self._reference.generate(prompt, len(result.tokens[0]))
        logits = self._reference.outputs(_whole([*prompt, *tokens]))["logits"]
        return tokens, logits[:, len(prompt) - 1 :]

    def generate_batch(self, result: Result) -> list[list[int]]:
        """The tokens that each prompt gives alone: a batch must not change them."""
        pairs = zip(result.prompts, result.tokens, strict=True)
        return [self._reference.generate(prompt, len(found)) for prompt, found in pairs]

    def outputs(self, request: StepRequest) -> dict[str, Array]:
        """See `Expectation`."""
        return self._reference.outputs(request.original)

    def cuts_of_generation(self, result: Result, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`."""
        return self._cuts(_whole([*result.prompts[0], *result.tokens[0]]), crossed)

    def cuts_of_step(self, request: StepRequest, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`."""
        return self._cuts(request.original, crossed)

    def _cuts(self, inputs: Mapping[str, Array], crossed: Mapping[Place, Array]) -> Errors:
        floats = {place: array for place, array in crossed.items() if np.issubdtype(array.dtype, np.floating)}
        length = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
        seen = self._reference.activations(inputs, shapes_to_watch(floats.values(), length))
        return {place: nearest(array, seen) for place, array in floats.items()}


def _whole(tokens: list[int]) -> dict[str, Array]:
    """The inputs of all steps at once; nothing follows the last token."""
    return {"input_ids": np.array([tokens[:-1]], np.int64)}
