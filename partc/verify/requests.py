"""The ring beside what is right, request by request: tokens, logits or outputs, and every value that crosses a link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from partc.pipeline.contract import Progress
from partc.runtime.client.client import Client
from partc.runtime.client.results import Crossing, Result
from partc.runtime.manifest import Manifest
from partc.verify.compare import difference, join_steps, largest, same, valid_rows
from partc.verify.inputs import Requests, built_in_prompts, built_in_requests, count_tokens
from partc.verify.report import Case, CutError, Report
from partc.verify.right import Errors, Place, Right

Array = npt.NDArray[Any]


class _Check:
    """What both kinds of models share."""

    def __init__(self, client: Client, right: Right, progress: Progress) -> None:
        self.client = client
        self.right = right
        self.progress = progress
        self.manifest: Manifest = client.manifest
        self.cases: list[Case] = []
        self.largest = 0.0

    def report(self, cuts: Sequence[CutError]) -> Report:
        return Report(self.cases, cuts, self.right.tolerance, self.largest, self.right.what)

    def error(self, found: Array, right: Array) -> float:
        """Largest difference of an output, and notes how large outputs are."""
        self.largest = max(self.largest, largest(right))
        return difference(found, right)


class Generation(_Check):
    """Decoders: tokens, logits and cuts over all steps."""

    def run(self, asked: Requests) -> Report:
        """Compare all requests, each alone and some of them in one batch."""
        count = asked.count(self.manifest.model)
        prompts: list[Any] = list(asked.texts) or built_in_prompts(self.manifest.model, count)
        requests = [
            self.client.submit([p], max_new_tokens=count, ignore_eos=True, trace=True) for p in prompts
        ]
        equal = []
        for number, request in enumerate(requests):
            self.progress("compare requests", number, len(requests) + 1)
            if self.compare(result := request.result()):
                equal.append(result)
        model = self.manifest.model
        if model.max_batch > 1 and len(prompts) > 1 and not model.uniform_positions:
            self.compare_batch(prompts[: model.max_batch], count)
        self.progress("compare requests", len(requests) + 1, len(requests) + 1)
        errors = _Errors()
        for number, result in enumerate(equal):
            self.progress("compare cuts", number, len(equal))
            errors.add(self.right.cuts_of_generation(result, links(result.trace)))
        return self.report(errors.cuts())

    def compare(self, result: Result) -> bool:
        """Note a case; whether all tokens are identical."""
        found = list(result.tokens[0])
        right, logits = self.right.generate(result)
        sampled = [array for place, array in join_steps(result.trace).items() if place[1] == place[2]]
        error = self.error(sampled[0], logits) if sampled else float("inf")
        what = f"prompt of {count_tokens(len(result.prompts[0]))}"
        self.cases.append(Case(what, len(right), same(found, right), error))
        return found == right

    def compare_batch(self, prompts: Sequence[Any], count: int) -> None:
        """Prompts of unequal length in one batch."""
        result = self.client.generate(prompts, count, ignore_eos=True, trace=True)
        right = self.right.generate_batch(result)
        identical = sum(same(*pair) for pair in zip(result.tokens, right, strict=True))
        lengths = ", ".join(str(len(prompt)) for prompt in result.prompts)
        total = sum(map(len, right))
        self.cases.append(Case(f"batch of prompts of {lengths} tokens", total, identical, 0.0))


class OneStep(_Check):
    """Encoders, classifiers and any other graph: outputs and cuts of one step."""

    def run(self) -> Report:
        """Compare all requests."""
        requests = built_in_requests(self.manifest)
        whole = []
        for number, given in enumerate(requests):
            self.progress("compare requests", number, len(requests))
            result = self.client.submit(inputs=given.ring, trace=True).result()
            right = self.right.outputs(given)
            valid = given.original.get("attention_mask")
            errors = [self.error(*valid_rows(valid, a, right[name])) for name, a in result.outputs.items()]
            self.cases.append(Case(given.what, None, None, max(errors, default=float("inf"))))
            if valid is None or valid.all():
                whole.append((given, links(result.trace)))
        self.progress("compare requests", len(requests), len(requests))
        errors_at_cuts = _Errors()
        for given, crossed in whole:
            errors_at_cuts.add(self.right.cuts_of_step(given, crossed))
        return self.report(errors_at_cuts.cuts())


class _Errors:
    """The largest error at every cut."""

    def __init__(self) -> None:
        self._found: Errors = {}

    def add(self, errors: Errors) -> None:
        for place, (error, size) in errors.items():
            before = self._found.get(place, (None, 0.0))
            known = [value for value in (before[0], error) if value is not None]
            self._found[place] = (max(known, default=None), max(before[1], size))

    def cuts(self) -> list[CutError]:
        return [CutError(*place, *found) for place, found in self._found.items()]


def links(trace: Sequence[Crossing]) -> dict[Place, Array]:
    """What crossed links over all steps, without the logits, which a device takes from itself."""
    return {place: array for place, array in join_steps(trace).items() if place[1] != place[2]}
