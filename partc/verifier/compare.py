"""Arrays beside arrays: which rows count, how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.runtime.client.results import Crossing

Array = npt.NDArray[Any]

_FILL = float(np.finfo(np.float32).max) / 2
"""From here on a value stands for an infinity, as masks are filled with, and says nothing of the size of others."""


def valid_rows(mask: Array | None, *arrays: Array) -> list[Array]:
    """Without the rows behind the end of a sentence, which mean nothing; other outputs as they are."""
    if mask is None:
        return list(arrays)
    return [array[mask == 1] if array.shape[:2] == mask.shape else array for array in arrays]


def difference(found: Array, expected: Array) -> float:
    """The largest absolute difference; infinite where the sizes differ or either holds a NaN.

    An infinity differs from everything but itself.
    """
    if found.shape != expected.shape:
        return float("inf")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(over="ignore"):
        error = float(np.abs(np.subtract(a, b, out=np.zeros_like(a), where=a != b)).max(initial=0.0))
    return error if np.isfinite(error) else float("inf")


def largest(array: Array) -> float:
    """The largest absolute value, to judge an error by; infinities, and what stands for them in masks, do not count.

    Else the one value that is masked would excuse any error of the others.
    """
    sizes = np.abs(array.astype(np.float64))
    return float(sizes.max(initial=0.0, where=sizes < _FILL))


def beside(array: Array, whole: Array) -> tuple[float, float]:
    """The largest difference to the tensor that it is, and the `largest` value of that tensor.

    Behind the choice of the last rows a value has a row a step only, and the last rows of the tensor count.
    """
    rows = whole[:, -array.shape[1] :] if array.ndim == whole.ndim > 2 else whole
    return difference(array, rows), largest(rows)


def same(found: Sequence[int], expected: Sequence[int]) -> int:
    """The number of tokens that are identical, from the first on."""
    pairs = enumerate(zip(found, expected, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(found), len(expected)))


def join_steps(trace: Sequence[Crossing]) -> dict[tuple[str, str, str], Array]:
    """(value, sender, receiver) → the rows of all steps of a request for one sequence, one behind the other."""
    pieces: dict[tuple[str, str, str], list[Array]] = {}
    for crossing in sorted(trace, key=lambda item: item.step):
        for name, array in crossing.values.items():
            pieces.setdefault((name, crossing.peer, crossing.device), []).append(array)
    return {place: np.concatenate(arrays, axis=_row_axis(arrays)) for place, arrays in pieces.items()}


def _row_axis(steps: Sequence[Array]) -> int:
    """The axis of the sequence: the one in which steps differ, or the last one before the features with one row.

    It is 1 in [batch, sequence, hidden], 0 where a model makes rows of both, 2 where it keeps several streams. The last
    step has one token, or none of it where devices divide rows.
    """
    shapes = {step.shape for step in steps}
    differ = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len({*sizes}) > 1]
    short = [axis for axis, size in enumerate(steps[-1].shape[:-1]) if size <= 1]
    return differ[0] if differ else short[-1] if short else 0
