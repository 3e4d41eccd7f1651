"""Tiles of products of float32: rows times panels of 16 whose sums stay in registers while the other operand passes."""

from __future__ import annotations

from targets.tvm.kernels.instructions import Tile
from targets.tvm.machine import Machine

NARROW = Tile(6, 1)
"""12 of 16 registers of AVX2, 24 of 32 of NEON."""
AVX512 = Tile(7, 2)
"""14 of 32 registers. One panel needs a load for every multiplication, two need 9 for 14: 134 GFLOP/s against 95 of
6 × 1 and 112 of 12 × 1 (Xeon, busy). Sums of 1 KB and more TVM takes from its heap, where LLVM stores them: 8 × 2
reached 68."""


def tile_of(machine: Machine) -> Tile:
    """The largest tile for every processor of this kind."""
    return AVX512 if "avx512f" in machine.enabled() else NARROW
