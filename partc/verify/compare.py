"""Arrays beside arrays: which tensor is meant, which rows count, how far apart they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def shapes_to_watch(arrays: Iterable[Array], length: int) -> set[tuple[int, ...]]:
    """Sizes of the original's tensors that may match: those of `arrays`, also over a whole sequence of `length`.

    Behind the choice of the last rows a value has a row a step only. Rotary tables have half of the columns that the
    original's have, which repeat them.
    """
    shapes = {array.shape for array in arrays}
    shapes |= {(shape[0], length, *shape[2:]) for shape in shapes if len(shape) > 2}
    return shapes | {(*shape[:-1], 2 * shape[-1]) for shape in shapes if len(shape) > 2}


def shapes_of_values(
    crossed: Mapping[tuple[str, str, str], Array], length: int
) -> dict[str, set[tuple[int, ...]]]:
    """Name of a value → `shapes_to_watch` of it, wherever it crossed a link."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for (name, _, _), array in crossed.items():
        found.setdefault(name, set()).update(shapes_to_watch([array], length))
    return found


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


def nearest(array: Array, seen: Iterable[Array]) -> tuple[float, float]:
    """The largest difference to the nearest tensor of the same sizes, and the `largest` value of that tensor.

    `seen` are tensors that the value may be: those of one module, which computes a few.

    Of a tensor with more rows the last ones are taken, and of one that repeats its columns the first half of them.
    """
    best = (float("inf"), 0.0)
    for tensor in seen:
        other = _unrepeated(tensor) if array.ndim > 2 and tensor.shape[-1] == 2 * array.shape[-1] else tensor
        rows = other[:, -array.shape[1] :] if array.ndim > 2 and other.ndim > 2 else other
        if rows.shape == array.shape:
            best = min(best, (difference(array, rows), largest(rows)))
    return best


def _unrepeated(tensor: Array) -> Array:
    """The first half of the columns, where the other half has the same numbers; else all of them."""
    first, second = np.split(tensor, 2, axis=-1)
    return first if np.array_equal(first, second) else tensor


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
