"""Layouts of tensors in memory: alignment, and states inside of an engine.

Outside of an engine, states are always rows (`partc.runtime.engines.states`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

ALIGNMENT = 64
"""Bytes that the address of every tensor is a multiple of for compiled code, and its offset in a file: a cache line."""
PANEL = 16
"""Positions of a panel: one cache line of float32, two registers of AVX2, four of NEON."""

Layout = Literal["plain", "panels"]
"""`plain`: as the shape says. `panels`: [batch, heads, positions, d] lies as [batch, heads, positions / 16, d, 16]."""


def panel_shape(shape: Sequence[int | str]) -> tuple[int | str, ...]:
    """The shape of panels that hold [batch, heads, positions, d]; the last panel is filled up."""
    batch, heads, positions, d = shape
    return batch, heads, -(-int(positions) // PANEL), d, PANEL
