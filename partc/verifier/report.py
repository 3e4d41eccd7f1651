"""The results of a verification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest absolute difference that counts as equal for values of magnitude 1; larger ones may differ in proportion."""
ORIGINAL, UNCUT = "the original", "the uncut model"
"""The names of the models that a cut model is compared with."""
QUANTIZED_TOLERANCE = 2e-2
"""The same for a quantised model: a few activations may round to the next of the 255 values that 8 bits have."""
SHARED_TOLERANCE = 1e-1
"""The same where devices share blocks of int8: each rounds activations by scales of its own."""


@dataclass(frozen=True)
class CutError:
    """The difference at one value that crosses a link."""

    value: str
    sender: str
    receiver: str
    max_abs_error: float
    """Over all steps of all requests, to the tensor of the original that the value is; for a quantised model to the
    value of that name in the uncut one."""
    largest: float
    """The largest absolute value there that is finite, to judge the error by."""
    piece: str = ""
    """`rows 2 of 3 of h`, where devices share blocks."""


@dataclass(frozen=True)
class Unknown:
    """A value that crosses a link and has no counterpart in the original that is known: it was not compared."""

    value: str
    sender: str
    receiver: str
    piece: str = ""
    """As in `CutError`."""


@dataclass(frozen=True)
class Case:
    """One request."""

    what: str
    """`prompt of 7 tokens`, `batch of prompts of 1, 7 and 33 tokens`, `input 1`."""
    tokens: int | None
    """Generated tokens; None for models that do not generate."""
    identical: int | None
    """The number of tokens that are identical, from the first on."""
    max_abs_error: float
    """The largest error of the logits or outputs."""


@dataclass(frozen=True)
class Cost:
    """The cost of quantisation: the quantised model beside the original in the precision of model.yaml.

    Where a figure means nothing for a model, it is None.
    """

    weights: str
    """int8 | int4 | none: of the layers."""
    head: str
    embeddings: str
    block: int
    """Weights of int4 that share a scale."""
    text: str
    """The text or the inputs on which it was measured."""
    tokens: int | None = None
    """Tokens that both predicted; inputs, for a model that classifies."""
    top1_agreement: float | None = None
    """The part of them for which both models rank the same token (or label) first: top-1 agreement."""
    kl_nats: float | None = None
    """Mean of KL(original || quantised) of the predicted distributions, nats a token."""
    perplexity: float | None = None
    perplexity_full: float | None = None
    """The perplexity of the original on the same tokens."""
    max_abs_error: float | None = None
    """The error of the outputs, for models that do not generate."""
    cache: str = "none"
    """int8 | none: of the caches of keys and values."""


@dataclass(frozen=True)
class Guessed:
    """One request with guessed tokens, beside the same without."""

    what: str
    """As in `Case`."""
    drafts: str
    """What was guessed from."""
    tokens: int
    identical: int
    """The number of tokens that are identical, from the first on."""
    drafted: int
    """Steps that began with a guessed token."""
    accepted: int
    """Those whose guess was right."""
    plain_s: float
    drafted_s: float
    """Seconds without, and with guesses."""


@dataclass(frozen=True, repr=False)
class Report:
    """The cut model against the original, or against the uncut model of the same quantisation."""

    cases: Sequence[Case]
    cuts: Sequence[CutError]
    tolerance: float
    largest_output: float
    """The largest absolute logit or output that is expected and finite."""
    against: str = ORIGINAL
    """The model that the cut model was compared with."""
    cost: Cost | None = None
    """The cost of quantisation, of a quantised build."""
    unknown: Sequence[Unknown] = ()
    """Values that crossed links and were not compared."""
    guessed: Sequence[Guessed] = ()
    """Requests with guessed tokens, where that was asked for."""
    note: str = ""
    """A remark that the reader needs to judge the result; mostly none."""

    @property
    def quantized(self) -> bool:
        """Whether the build is quantised."""
        return self.against == UNCUT

    @property
    def identical_tokens(self) -> bool | None:
        """Whether all tokens are identical; None where there are none."""
        if all(case.tokens is None for case in self.cases):
            return None
        return all(case.tokens == case.identical for case in self.cases)

    @property
    def max_abs_error(self) -> float:
        """Largest difference of logits or outputs."""
        return max((case.max_abs_error for case in self.cases), default=0.0)

    @property
    def equal(self) -> bool:
        """Tokens identical, and every cut and output within tolerance."""
        outputs = self._is_small(self.max_abs_error, self.largest_output)
        cuts = all(self._is_small(cut.max_abs_error, cut.largest) for cut in self.cuts)
        guesses = all(each.tokens == each.identical for each in self.guessed)
        return outputs and cuts and guesses and self.identical_tokens is not False

    @property
    def wrong(self) -> list[CutError]:
        """The values that differ by more than the tolerance, the first of a step first."""
        return [cut for cut in self.cuts if not self._is_small(cut.max_abs_error, cut.largest)]

    def _is_small(self, error: float, largest: float) -> bool:
        """Whether an error is within tolerance beside values of this size; nothing is beside infinite ones."""
        return error <= self.tolerance * max(1.0, largest) < math.inf

    def __repr__(self) -> str:
        verdict = "equal" if self.equal else "NOT EQUAL"
        return f"<partc.Report: {verdict}, {len(self.cases)} cases, largest error {self.max_abs_error:.2g}>"

    def to_json(self) -> dict[str, Any]:
        """The report as data for JSON.

        `against` and `quantization` are there for a quantised build alone, `not_compared` where there are such values.
        """
        return {
            "equal": self.equal,
            "identical_tokens": self.identical_tokens,
            "max_abs_error": self.max_abs_error,
            "largest_output": self.largest_output,
            "tolerance": self.tolerance,
            "cases": [asdict(case) for case in self.cases],
            "cuts": [_plain(cut) for cut in self.cuts],
            **({"not_compared": [_plain(value) for value in self.unknown]} if self.unknown else {}),
            **({"against": self.against} if self.quantized else {}),
            **({"quantization": asdict(self.cost)} if self.cost else {}),
            **({"drafts": [asdict(each) for each in self.guessed]} if self.guessed else {}),
            **({"note": self.note} if self.note else {}),
        }


def _plain(cut: CutError | Unknown) -> dict[str, Any]:
    """The fields of a cut; `piece` where it is one."""
    fields = asdict(cut)
    return fields if cut.piece else {key: value for key, value in fields.items() if key != "piece"}
