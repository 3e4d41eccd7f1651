"""The results that a cut model must give: those of the original, or of the uncut model of the same quantisation.

A quantised model is compared with the uncut one by name: tokens, logits, and every value that crosses a link.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.errors import BundleError
from partc.format.build import Model
from partc.format.reading import RECOMPILE
from partc.runtime.client.results import Crossing, Result
from partc.runtime.core.source.inputs import prompt_ends
from partc.verifier.compare import beside, difference, join_steps, largest
from partc.verifier.inputs import Answer, StepRequest
from partc.verifier.pieces import Crossed
from partc.verifier.reference import Reference
from partc.verifier.report import ORIGINAL, QUANTIZED_TOLERANCE, SHARED_TOLERANCE, TOLERANCES, UNCUT
from partc.verifier.uncut import TWIN, UncutModel

Array = npt.NDArray[Any]
Place = tuple[str, str, str]
"""(value, sender, receiver)."""
Errors = dict[Place, tuple[float, float] | None]
"""The largest error at a cut, and the largest value there; None where no counterpart of the value is known."""


class Expectation(ABC):
    """The results that a cut model has to give; of bfloat16 as float32."""

    what: str
    """`the original`, for tables."""
    tolerance: float
    """Largest error that counts as equal for values of magnitude 1."""

    @abstractmethod
    def generate(self, answer: Answer) -> tuple[list[int], Array]:
        """The tokens for an answer's prompt, and the logits [1, tokens, vocabulary] that they were taken of."""

    @abstractmethod
    def generate_batch(self, result: Result) -> list[list[int]]:
        """The tokens for every prompt of a batch."""

    @abstractmethod
    def outputs(self, request: StepRequest) -> dict[str, Array]:
        """The outputs of one step by name."""

    @abstractmethod
    def cuts_of_generation(self, answer: Answer, crossed: Mapping[Place, Array]) -> Errors:
        """Errors of the values that crossed links in a request whose tokens are as expected; comes last."""

    @abstractmethod
    def pieces(self, inputs: StepRequest | Answer, crossed: Mapping[Place, Crossed]) -> Errors:
        """Errors of pieces of values that crossed links, in a request of one step or of tokens; comes last."""

    @abstractmethod
    def cuts_of_step(self, request: StepRequest, crossed: Mapping[Place, Array]) -> Errors:
        """The same as `cuts_of_generation`, for a request of one step."""


class Original(Expectation):
    """The model in transformers, or an ONNX file in onnxruntime.

    A value that crosses a link is compared with the tensor of the original that it is, never with one that looks like
    it: the tensor of an ONNX file that it was imported as, or the result of the line of the model's code that it was
    traced from. A value without a counterpart is reported as not compared.

    For decoders the original runs once over the whole sequence without a cache, the ring in a prefill and one step a
    token, and rows are compared with rows: the caches are part of what is proven.
    """

    what = ORIGINAL

    def __init__(self, reference: Reference, dtype: str) -> None:
        self._reference = reference
        self.tolerance = TOLERANCES.get(dtype, TOLERANCES["float32"])

    def generate(self, answer: Answer) -> tuple[list[int], Array]:
        """See `Expectation`."""
        tokens = self._reference.generate(answer.prompt, len(answer.tokens))
        logits = self._reference.outputs(self._reference.whole(answer.prompt, tokens))["logits"]
        return tokens, logits[:, -len(tokens) :]

    def generate_batch(self, result: Result) -> list[list[int]]:
        """The tokens that each prompt gives alone: a batch must not change them."""
        pairs = zip(result.prompts, result.tokens, strict=True)
        return [self._reference.generate(prompt, len(found)) for prompt, found in pairs]

    def outputs(self, request: StepRequest) -> dict[str, Array]:
        """See `Expectation`."""
        return self._reference.outputs(request.original)

    def cuts_of_generation(self, answer: Answer, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`."""
        return self._cuts(self._whole(answer), crossed)

    def cuts_of_step(self, request: StepRequest, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`."""
        return self._cuts(request.original, crossed)

    def pieces(self, inputs: StepRequest | Answer, crossed: Mapping[Place, Crossed]) -> Errors:
        """See `Expectation`; what a product with a bias makes without it counts, too: sums end before it."""
        given = inputs.original if isinstance(inputs, StepRequest) else self._whole(inputs)
        seen = self._reference.counterparts(given, {one.piece.whole for one in crossed.values()})
        return {place: _piece_beside(one, seen.get(one.piece.whole)) for place, one in crossed.items()}

    def _cuts(self, inputs: Mapping[str, Array], crossed: Mapping[Place, Array]) -> Errors:
        seen = self._reference.counterparts(inputs, {name for name, _, _ in crossed})
        return {
            place: beside(array, seen[place[0]]) if place[0] in seen else None
            for place, array in crossed.items()
        }

    def _whole(self, answer: Answer) -> dict[str, Array]:
        return self._reference.whole(answer.prompt, answer.tokens)


def _piece_beside(one: Crossed, whole: Array | None) -> tuple[float, float] | None:
    """The largest error of a piece, and the largest value there; None where its counterpart is not known."""
    # A product of rows has the rows of all sequences in one axis.
    if whole is None or whole.size != math.prod(one.shape) or whole.shape[-1] != one.shape[-1]:
        return None
    part = one.take(whole.reshape(one.shape))
    return difference(one.array, part), largest(part)


def _floats(crossed: Mapping[Place, Array]) -> dict[Place, Array]:
    return {place: array for place, array in crossed.items() if np.issubdtype(array.dtype, np.floating)}


class SameQuantization(Expectation):
    """The uncut model of the same quantisation, with the same steps.

    Tokens must be identical. Errors need not be 0: where a fused operator would span a cut, each side of the cut
    computes a part of it, which rounds differently in the last bit, and an activation that is rounded to 8 bits behind
    it may fall on the other side.
    """

    what = UNCUT

    def __init__(self, folder: Path, ring: Model, *, shared: bool = False) -> None:
        """The bundle of the one device, with a twin that returns all values that cross links of the ring.

        `shared`: whether devices of the ring share blocks.
        """
        self.tolerance = SHARED_TOLERANCE if shared else QUANTIZED_TOLERANCE
        self._folder = folder
        self._ring = ring
        self._model: UncutModel | None = UncutModel(folder)
        self._twin: UncutModel | None = None

    def generate(self, answer: Answer) -> tuple[list[int], Array]:
        """See `Expectation`."""
        assert self._model is not None
        prompt, count = answer.ids, len(answer.tokens)
        found = self._model.generate([prompt], self._steps(len(prompt)), count)
        made = [crossing.values[self._model.output] for crossing in found.crossings]
        # The steps before the last one of a prompt choose no token.
        return found.tokens[0], np.concatenate(made[-count:], axis=1)

    def generate_batch(self, result: Result) -> list[list[int]]:
        """The same batch: int8 products may round the rows of a batch otherwise than a row alone."""
        assert self._model is not None
        steps = self._steps(max(map(len, result.prompts)), len(result.prompts))
        return self._model.generate(result.prompts, steps, len(result.tokens[0])).tokens

    def outputs(self, request: StepRequest) -> dict[str, Array]:
        """See `Expectation`."""
        assert self._model is not None
        return self._model.outputs(request.ring)

    def cuts_of_generation(self, answer: Answer, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`."""
        prompt, count = answer.ids, len(answer.tokens)
        steps = self._steps(len(prompt))
        return self._errors(crossed, lambda model: model.generate([prompt], steps, count).crossings)

    def cuts_of_step(self, request: StepRequest, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`."""

        def run(model: UncutModel) -> list[Crossing]:
            return [Crossing("", "", 0, {**request.ring, **model.outputs(request.ring)})]

        return self._errors(crossed, run)

    def pieces(self, inputs: StepRequest | Answer, crossed: Mapping[Place, Crossed]) -> Errors:
        """See `Expectation`; the twin lacks sums before a bias, and some values of batches."""
        if not crossed:
            return {}
        if self._twin is None:
            self._model = None
            self._twin = UncutModel(self._folder, TWIN)
        if isinstance(inputs, StepRequest):
            seen = {**inputs.ring, **self._twin.outputs(inputs.ring)}
        else:
            prompt, count = inputs.ids, len(inputs.tokens)
            answer = self._twin.generate([prompt], self._steps(len(prompt)), count)
            seen = {name: array for (name, _, _), array in join_steps(answer.crossings).items()}
        return {place: _piece_beside(one, seen.get(one.piece.whole)) for place, one in crossed.items()}

    def _steps(self, tokens: int, sequences: int = 1) -> list[int]:
        """The rows of the steps that the ring takes prompts of so many tokens in."""
        ends = prompt_ends(tokens, sequences, self._ring)
        return [end - start for start, end in pairwise((0, *ends))]

    def _errors(self, crossed: Mapping[Place, Array], run: Callable[[UncutModel], list[Crossing]]) -> Errors:
        """Raises BundleError where the build is of another graph."""
        floats = _floats(crossed)
        if not floats:
            return {}
        if self._twin is None:
            self._model = None  # nothing asks it any more, and both may not fit into memory
            self._twin = UncutModel(self._folder, TWIN)
        seen = {name: array for (name, _, _), array in join_steps(run(self._twin)).items()}
        for name, sender, receiver in floats:
            if name not in seen:
                message = f"{name!r} goes from {sender} to {receiver}, but the uncut model has no such value"
                raise BundleError(message, hint=RECOMPILE)
        return {
            place: (difference(array, seen[place[0]]), largest(seen[place[0]]))
            for place, array in floats.items()
        }
