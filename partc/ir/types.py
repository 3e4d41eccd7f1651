"""Element types of the IR: the rows of `partc.format.dtypes`, with the numpy type that the compiler computes in."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import ml_dtypes
import numpy as np

from partc.format import dtypes


@dataclass(frozen=True)
class ElementType(dtypes.ElementType):
    """One row of the table."""

    numpy: np.dtype[np.generic]
    """The same as `held`, but for bfloat16, which ml_dtypes can compute with."""


def _computed(row: dtypes.ElementType) -> ElementType:
    numpy = np.dtype(ml_dtypes.bfloat16) if row.long == "bfloat16" else np.dtype(row.long)
    return ElementType(**asdict(row), numpy=numpy)


ELEMENT_TYPES = tuple(_computed(row) for row in dtypes.ELEMENT_TYPES)

BY_SHORT = {row.short: row for row in ELEMENT_TYPES}
BY_LONG = {row.long: row for row in ELEMENT_TYPES}
BY_ONNX = {row.onnx: row for row in ELEMENT_TYPES}
BY_NUMPY = {row.numpy: row for row in ELEMENT_TYPES}
HALF = frozenset({"f16", "bf16"})
"""Half precision, which not every engine has kernels for."""
