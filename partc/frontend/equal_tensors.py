"""Whether tensors of a checkpoint are equal, read in blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from partc.ir.types import BY_SHORT
from partc.ir.weights import Array, Leaf, WeightExpr, materialize

_BLOCK = 1 << 22
"""Elements that are compared at once: 16 MiB of float32."""


def equal_values(first: WeightExpr, second: WeightExpr, dtype: str, read: Callable[[Leaf], Array]) -> bool:
    """Whether two weights are equal once both have the element type `dtype`.

    Tensors of files stay mapped, so that the memory is that of two blocks; those that transformers puts together of
    several are made whole. A NaN is equal to nothing, as in transformers. O(elements).
    """
    a, b = materialize(first, read), materialize(second, read)
    if a.shape != b.shape:
        return False
    flat_a, flat_b, wanted = a.reshape(-1), b.reshape(-1), BY_SHORT[dtype].numpy
    return all(
        np.array_equal(
            flat_a[at : at + _BLOCK].astype(wanted, copy=False),
            flat_b[at : at + _BLOCK].astype(wanted, copy=False),
        )
        for at in range(0, flat_a.size, _BLOCK)
    )
