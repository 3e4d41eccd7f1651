"""AVX-VNNI: `vpdpbusd` on vectors of 256 bits, of processors without AVX-512."""

from __future__ import annotations

from targets.tvm.kernels.instructions.contract import InstructionSet, Tile, halves_of_words, whole_sums
from targets.tvm.kernels.instructions.vnni import Vnni

_OWN = Vnni(8)

AVX_VNNI = InstructionSet(
    name="avx-vnni",
    arch="x86_64",
    needs=frozenset(("avx2", "fma", "f16c", "avxvnni")),
    lanes=_OWN.lanes,
    halves=halves_of_words(_OWN.lanes),
    sums4=whole_sums(_OWN.add4),
    sums8=whole_sums(_OWN.add8),
    dot8=_OWN.dot8,
    unsigned=True,
    few4=8,
    unrolled4=True,
    few8=8,
    few8_blocks=3,
    tile4=Tile(3, 1),
    tile8=Tile(3, 2),
)
