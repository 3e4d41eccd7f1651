"""One tensor of several that have different parts in it: integers and their scales, a matrix and its adapter.

| mix | a weight is |
| --- | --- |
| `scaled(block, q, s)` | s[n, k / block] · q[n, k] |
| `scaled(block, q, s, z)` | s[n, k / block] · (q[n, k] - z[n, k / block]) |
| `take(1, a, index)` | a[n, index[k]] |
| `lora(scale, w, b, a)` | w + (b · a) · scale |
| `dora(scale, w, b, a, m)` | m / ‖w + (b · a) · scale‖ · (w + (b · a) · scale), the norm by rows |

Rows of the result come from the same rows of most parts, and from the whole of those that `Mix.whole` names: an index,
the second factor of an adapter. A block of 0 is a whole row. LoRA: Hu et al. 2021, section 4.1; DoRA: Liu et al. 2024,
equation 5; the order of operations is that of peft's `merge_and_unload`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Mix:
    """A way to make one tensor of several."""

    make: Callable[..., Array]
    """The number of the text, then the parts."""
    whole: frozenset[int] = frozenset()
    """Places of parts that every row needs whole."""


def _scaled(block: float, data: Array, scale: Array, zeros: Array | None = None) -> Array:
    columns = data.shape[-1]
    step = int(block) or columns
    if columns % step == 0 and scale.shape[-1] * step == columns:
        grouped = data.reshape(*scale.shape, step).astype(np.float32)
        if zeros is not None:
            grouped -= zeros.astype(np.float32)[..., None]
        grouped *= scale.astype(np.float32)[..., None]
        return grouped.reshape(data.shape)
    values = data.astype(np.float32)
    if zeros is not None:
        values -= _spread(zeros, step, columns)
    values *= _spread(scale, step, columns)
    return values


def _spread(each: Array, step: int, columns: int) -> Array:
    """A number for every column, where the last block may be cut off."""
    spread = np.repeat(each.astype(np.float32), step, axis=-1)
    if spread.shape[-1] < columns:
        raise ValueError(f"{each.shape[-1]} blocks of {step} are too few for {columns} columns")
    return spread[..., :columns]


def _take(axis: float, array: Array, index: Array) -> Array:
    places = index.reshape(-1).astype(np.int64)
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < array.shape[int(axis)]:
        raise ValueError(f"an index beyond the {array.shape[int(axis)]} that there are")
    return np.take(array, places, axis=int(axis))


def _lora(scale: float, weight: Array, up: Array, down: Array) -> Array:
    merged: Array = weight.astype(np.float32)
    merged += (up.astype(np.float32) @ down.astype(np.float32)) * np.float32(scale)
    return merged


def _dora(scale: float, weight: Array, up: Array, down: Array, magnitude: Array) -> Array:
    merged = _lora(scale, weight, up, down)
    length = np.linalg.norm(merged, axis=1).astype(np.float32)
    whole: Array = (magnitude.reshape(-1).astype(np.float32) / length)[:, None] * merged
    return whole


def nested(block: int, index: Array, table: Array, scale: Array) -> Array:
    """Scales that are quantised themselves, as bitsandbytes does: table[index[i]] · scale[i / block]; index [n]."""
    found: Array = table.reshape(-1).astype(np.float32)[index.reshape(-1)]
    found *= np.repeat(scale.reshape(-1).astype(np.float32), block)[: found.size]
    return found


MIXES: Mapping[str, Mix] = {
    "scaled": Mix(_scaled),
    "take": Mix(_take, frozenset({1})),
    "lora": Mix(_lora, frozenset({2})),
    "dora": Mix(_dora, frozenset({2})),
}
