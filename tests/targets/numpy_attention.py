"""Attention and caches in plain numpy, written from the contract alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""An array whose element type no test needs to name."""


def update(cache: Array, new: Array, position: Array) -> Array:
    """The cache after `new` has been written to rows position[b]…"""
    result = cache.copy()
    for b, start in enumerate(position):
        result[b, :, start : start + new.shape[2]] = new[b]
    return result


def attention(
    q: Array, k: Array, v: Array, position: Array, *, scale: float, causal: bool = True, window: int = 0,
    chunk: int = 0, softcap: float = 0.0, mask: Array | None = None, sinks: Array | None = None,
) -> Array:  # fmt: skip
    """`partc.Attention`, one query at a time, in double precision."""
    batch, heads, rows, _ = q.shape
    group, keys = heads // k.shape[1], k.shape[2]
    out = np.zeros((batch, heads, rows, v.shape[3]))
    j = np.arange(keys)
    for b, h, s in np.ndindex(batch, heads, rows):
        i = int(position[b]) + s
        seen = np.ones(keys, bool)
        if causal or window or chunk:
            seen &= j <= i
        if window:
            seen &= j > i - window
        if chunk:
            seen &= j // chunk == i // chunk
        logits = k[b, h // group].astype(np.float64) @ q[b, h, s].astype(np.float64) * scale
        if softcap:
            logits = softcap * np.tanh(logits / softcap)
        if mask is not None:
            row = np.broadcast_to(mask, (batch, heads, rows, keys))[b, h, s]
            seen, logits = (seen & row, logits) if row.dtype == bool else (seen, logits + row)
        logits = np.where(seen, logits, -np.inf)
        if sinks is not None:
            logits = np.append(logits, sinks[h])
        weights = np.exp(logits - logits.max())
        out[b, h, s] = (weights / weights.sum())[:keys] @ v[b, h // group].astype(np.float64)
    return out.astype(q.dtype)
