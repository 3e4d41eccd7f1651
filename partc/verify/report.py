"""What a verification found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest absolute difference that counts as equal for values of magnitude 1; larger ones may differ in proportion."""


@dataclass(frozen=True)
class CutError:
    """The difference at one value that crosses a link."""

    value: str
    sender: str
    receiver: str
    max_abs_error: float
    """Over all steps of all requests; to the nearest tensor of the original that has the same sizes."""
    largest: float
    """The largest absolute value of the original's tensor, to judge the error by."""


@dataclass(frozen=True)
class Case:
    """One request."""

    what: str
    """`prompt of 7 tokens`, `batch of prompts of 1, 7 and 33 tokens`, `input 1`."""
    tokens: int | None
    """Generated tokens; None for models that do not generate."""
    identical: int | None
    """How many of them are identical from the first on."""
    max_abs_error: float
    """Of the logits or outputs."""


@dataclass(frozen=True)
class Report:
    """The cut model against the original."""

    cases: Sequence[Case]
    cuts: Sequence[CutError]
    tolerance: float
    largest_output: float
    """The largest absolute logit or output of the original."""

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
        outputs = self.max_abs_error <= self.tolerance * max(1.0, self.largest_output)
        cuts = all(cut.max_abs_error <= self.tolerance * max(1.0, cut.largest) for cut in self.cuts)
        return outputs and cuts and self.identical_tokens is not False

    def to_json(self) -> dict[str, Any]:
        """As data: `equal`, `identical_tokens`, `max_abs_error`, `tolerance`, `cases`, `cuts`."""
        return {
            "equal": self.equal,
            "identical_tokens": self.identical_tokens,
            "max_abs_error": self.max_abs_error,
            "largest_output": self.largest_output,
            "tolerance": self.tolerance,
            "cases": [asdict(case) for case in self.cases],
            "cuts": [asdict(cut) for cut in self.cuts],
        }
