"""The uncut model of a quantised build that reads a source or media: a ring of one device.

What such a model computes once, it keeps for later steps, as programs say; so the uncut model is played as they are.
Tokens and logits are compared. Values inside of the graph cross no link there, so cuts are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.format.dtypes import as_numbers
from partc.runtime.client.client import Client
from partc.runtime.client.results import Result
from partc.verifier.compare import join_steps
from partc.verifier.expectation import Errors, Expectation, Place
from partc.verifier.inputs import Answer, StepRequest, asked_by
from partc.verifier.pieces import Crossed
from partc.verifier.report import QUANTIZED_TOLERANCE, SHARED_TOLERANCE, UNCUT

Array = npt.NDArray[Any]


class UncutRing(Expectation):
    """The results of the uncut model of the same quantisation, from a ring of one device."""

    what = UNCUT

    def __init__(self, client: Client, *, shared: bool) -> None:
        """`client`: of the ring of the uncut model; `shared`: whether devices of the ring compared share blocks."""
        self._client = client
        self.tolerance = SHARED_TOLERANCE if shared else QUANTIZED_TOLERANCE

    def generate(self, answer: Answer) -> tuple[list[int], Array]:
        """See `Expectation`."""
        asked: dict[str, Any] = {**asked_by(answer.prompt), "max_new_tokens": len(answer.tokens)}
        result = self._client.submit(**asked, ignore_eos=True, trace=True).result()
        types = self._client.role.types
        logits = next(
            as_numbers(array, types[name].dtype)
            for (name, sender, receiver), array in join_steps(result.trace).items()
            if sender == receiver
        )
        return list(result.tokens[0]), logits.astype(np.float32)

    def generate_batch(self, result: Result) -> list[list[int]]:
        """See `Expectation`."""
        count = len(result.tokens[0])
        made = self._client.submit(result.prompts, max_new_tokens=count, ignore_eos=True).result()
        return [list(tokens) for tokens in made.tokens]

    def outputs(self, request: StepRequest) -> dict[str, Array]:
        """See `Expectation`."""
        return dict(self._client.submit(inputs=dict(request.ring)).result().outputs)

    def cuts_of_generation(self, answer: Answer, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`; nothing is known of any."""
        return dict.fromkeys(crossed)

    def cuts_of_step(self, request: StepRequest, crossed: Mapping[Place, Array]) -> Errors:
        """See `Expectation`; nothing is known of any."""
        return dict.fromkeys(crossed)

    def pieces(self, inputs: StepRequest | Answer, crossed: Mapping[Place, Crossed]) -> Errors:
        """See `Expectation`; nothing is known of any."""
        return dict.fromkeys(crossed)
