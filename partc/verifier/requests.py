"""The ring compared with the expectation, request by request: tokens, logits or outputs, and values on links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.format.build import TensorType
from partc.format.dtypes import as_numbers
from partc.format.program import Sample
from partc.format.role import Role
from partc.pipeline.contract import Progress
from partc.runtime.client.client import Client
from partc.runtime.client.request import Request
from partc.runtime.client.results import Crossing
from partc.runtime.core.source.inputs import prompt_ends
from partc.verifier.compare import difference, join_steps, largest, same, valid_rows
from partc.verifier.expectation import Errors, Expectation, Place
from partc.verifier.inputs import (
    Answer,
    Requests,
    StepRequest,
    asked_by,
    built_in_requests,
    prompts_for,
)
from partc.verifier.pieces import Crossed, Piece, crossed_pieces, order_of, pieces_of, shares_blocks
from partc.verifier.report import Case, CutError, Report, Unknown

Array = npt.NDArray[Any]


class _Check:
    """The part that is the same for both kinds of models."""

    def __init__(
        self, client: Client, expected: Expectation, types: Mapping[str, TensorType], progress: Progress
    ) -> None:
        """`types`: of all values of the ring."""
        self.client = client
        self.expected = expected
        self.types = types
        self.progress = progress
        self.role: Role = client.role
        self.cases: list[Case] = []
        self.largest = 0.0

    def report(self, cuts: Sequence[CutError], unknown: Sequence[Unknown] = ()) -> Report:
        return Report(
            self.cases, cuts, self.expected.tolerance, self.largest, self.expected.what, unknown=unknown
        )

    def crossed(self, trace: Sequence[Crossing]) -> dict[Place, Array]:
        """The values of all steps, the logits among them, which a device takes from itself."""
        return {
            place: as_numbers(array, self.types[place[0]].dtype) for place, array in join_steps(trace).items()
        }

    def cuts(self, trace: Sequence[Crossing]) -> dict[Place, Array]:
        """The values that crossed links, without the logits and the tokens that are drawn of them."""
        crossed = self.crossed(trace).items()
        return {
            place: array for place, array in crossed if place[1] != place[2] and place[0] not in self.drawn
        }

    @cached_property
    def drawn(self) -> frozenset[str]:
        """The tokens that devices draw: no values of a model, and compared as the answer."""
        programs = chain.from_iterable(by.values() for by in self.role.placement.parsed.values())
        return frozenset(item.token for item in chain.from_iterable(programs) if isinstance(item, Sample))

    @cached_property
    def named(self) -> dict[str, Piece]:
        """The values that cross links as pieces of a whole model's; empty where devices share no blocks."""
        placement = self.role.placement
        return pieces_of(placement, self.types) if shares_blocks(placement) else {}

    @property
    def order(self) -> dict[Place, float]:
        """When values cross links, where devices share blocks."""
        return order_of(self.role.placement) if self.named else {}

    def pieces_of(self, trace: Sequence[Crossing], steps: Sequence[int]) -> dict[Place, Crossed]:
        """The pieces that crossed links in steps of so many rows."""
        numbers = [
            replace(
                crossing,
                values={
                    name: as_numbers(array, self.types[name].dtype) for name, array in crossing.values.items()
                },
            )
            for crossing in trace
        ]
        found = crossed_pieces(numbers, steps, self.named, self.types)
        return {place: one for place, one in found.items() if np.issubdtype(one.array.dtype, np.floating)}

    def error(self, found: Array, expected: Array) -> float:
        """Largest difference of an output, and notes how large outputs are."""
        self.largest = max(self.largest, largest(expected))
        return difference(found, expected)


class Generation(_Check):
    """Decoders: tokens, logits and cuts over all steps."""

    def run(self, asked: Requests) -> Report:
        """Compare all requests, each alone and some of them in one batch."""
        count = asked.count(self.role.model)
        prompts = prompts_for(asked, self.role)
        requests = [self.submit(prompt, count) for prompt in prompts]
        equal, different = [], []
        for number, (prompt, request) in enumerate(zip(prompts, requests, strict=True)):
            self.progress("compare requests", number, len(requests) + 1)
            result = request.result()
            answer = Answer(prompt if isinstance(prompt, Mapping) else result.prompts[0], result)
            if self.compare(answer):
                equal.append(answer)
            else:  # behind the first token that differs nothing can be compared
                first = replace(result, tokens=[result.tokens[0][:1]])
                different.append(replace(answer, result=first))
        model = self.role.model
        several = model.max_batch > 1 and len(prompts) > 1 and self.role.takes_tokens
        if several and (model.start_tokens or not model.uniform_positions):
            self.compare_batch(prompts[: model.max_batch], count)
        self.progress("compare requests", len(requests) + 1, len(requests) + 1)
        errors = _Errors(self.named, self.order)
        compared = [*equal, *different] if self.named else equal
        if model.placeholder_token is not None:
            # Without a picture the ring computes a blank one, and the original none.
            compared = [answer for answer in compared if isinstance(answer.prompt, Mapping)]
        for number, answer in enumerate(compared):
            self.progress("compare cuts", number, len(compared))
            if self.named:
                errors.add(self.pieces(answer))
            else:
                errors.add(self.expected.cuts_of_generation(answer, self.cuts(answer.result.trace)))
        return self.report(errors.cuts(), errors.unknown())

    def submit(self, prompt: Any, count: int) -> Request:
        """Ask for an answer to a text, to token ids, or to a sound."""
        return self.client.submit(**asked_by(prompt), max_new_tokens=count, ignore_eos=True, trace=True)

    def pieces(self, answer: Answer) -> Errors:
        """The errors of all values that crossed links where devices share blocks."""
        result, count = answer.result, len(answer.tokens)
        ends = prompt_ends(len(answer.ids), 1, self.role.model)
        steps = [end - start for start, end in pairwise((0, *ends))] + [1] * (count - 1)
        trace = [crossing for crossing in result.trace if crossing.step < len(steps)]
        return self.expected.pieces(answer, self.pieces_of(trace, steps))

    def compare(self, answer: Answer) -> bool:
        """Note a case; whether all tokens are identical."""
        found = answer.tokens
        expected, logits = self.expected.generate(answer)
        sampled = [
            array for place, array in self.crossed(answer.result.trace).items() if place[1] == place[2]
        ]
        error = self.error(sampled[0], logits) if sampled else float("inf")
        self.cases.append(Case(answer.what, len(expected), same(found, expected), error))
        return found == expected

    def compare_batch(self, prompts: Sequence[Any], count: int) -> None:
        """Prompts of unequal length in one batch."""
        result = self.client.generate(prompts, count, ignore_eos=True, trace=True)
        expected = self.expected.generate_batch(result)
        identical = sum(same(*pair) for pair in zip(result.tokens, expected, strict=True))
        lengths = ", ".join(str(len(prompt)) for prompt in result.prompts)
        total = sum(map(len, expected))
        self.cases.append(Case(f"batch of prompts of {lengths} tokens", total, identical, 0.0))


class OneStep(_Check):
    """Encoders, classifiers and any other graph: outputs and cuts of one step."""

    def run(self) -> Report:
        """Compare all requests."""
        requests = built_in_requests(self.role)
        whole = []
        for number, request in enumerate(requests):
            self.progress("compare requests", number, len(requests))
            result = self.client.submit(inputs=request.ring, trace=True).result()
            expected = self.expected.outputs(request)
            valid = request.original.get("attention_mask")
            outputs = {name: as_numbers(a, self.types[name].dtype) for name, a in result.outputs.items()}
            errors = [self.error(*valid_rows(valid, a, expected[name])) for name, a in outputs.items()]
            self.cases.append(Case(request.what, None, None, max(errors, default=float("inf"))))
            if valid is None or valid.all():
                whole.append((request, result.trace))
        self.progress("compare requests", len(requests), len(requests))
        errors_at_cuts = _Errors(self.named, self.order)
        for request, trace in whole:
            if self.named:
                errors_at_cuts.add(self.expected.pieces(request, self.pieces_of(trace, [_rows(request)])))
            else:
                errors_at_cuts.add(self.expected.cuts_of_step(request, self.cuts(trace)))
        return self.report(errors_at_cuts.cuts(), errors_at_cuts.unknown())


def _rows(request: StepRequest) -> int:
    """Rows of a request of one step."""
    ids = request.ring.get("input_ids")
    return 1 if ids is None else int(ids.shape[1])


class _Errors:
    """The largest error at every cut."""

    def __init__(self, named: Mapping[str, Piece], order: Mapping[Place, float]) -> None:
        """`named`: values as pieces of whole ones; `order`: when they cross links; empty: of no interest."""
        self._found: Errors = {}
        self._named, self._order = named, order

    def add(self, errors: Errors) -> None:
        for place, found in errors.items():
            before = self._found.get(place)
            if found is None or before is None:
                self._found[place] = found or before
            else:
                self._found[place] = (max(before[0], found[0]), max(before[1], found[1]))

    def cuts(self) -> list[CutError]:
        known = {place: found for place, found in self._found.items() if found is not None}
        return [
            CutError(*place, *known[place], self._text(place)) for place in self._sorted() if place in known
        ]

    def unknown(self) -> list[Unknown]:
        """The values that were compared with nothing."""
        places = (place for place in self._sorted() if self._found[place] is None)
        return [Unknown(*place, self._text(place)) for place in places]

    def _sorted(self) -> list[Place]:
        return sorted(self._found, key=lambda place: self._order.get(place, 0.0))

    def _text(self, place: Place) -> str:
        return self._named[place[0]].text if self._named else ""
