"""The references of attention and caches, with the arguments that tests have at hand."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from partc.ir.operators import ATTENTION, UPDATE_STATE

Array = npt.NDArray[Any]
"""An array whose element type no test needs to name."""


def update(cache: Array, new: Array, position: Array) -> Array:
    """The cache after `new` has been written to rows position[b]…"""
    return UPDATE_STATE.reference([cache, new, position], {})[0]


def attention(
    q: Array, k: Array, v: Array, position: Array, *, scale: float, causal: bool = True, window: int = 0,
    chunk: int = 0, softcap: float = 0.0, mask: Array | None = None, sinks: Array | None = None,
) -> Array:  # fmt: skip
    """`partc.Attention`."""
    rule = {"scale": scale, "causal": causal, "window": window, "chunk": chunk, "softcap": softcap}
    return ATTENTION.reference([q, k, v, position, mask, sinks], rule)[0]
