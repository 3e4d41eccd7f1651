"""AVX-512 VNNI: `vpdpbusd` adds four products of unsigned and signed bytes to each of 16 sums."""

from __future__ import annotations

from targets.tvm.kernels.instructions.contract import InstructionSet, Tile, halves_of_words, whole_sums
from targets.tvm.kernels.instructions.vnni import Vnni

_OWN = Vnni(16)

AVX512_VNNI = InstructionSet(
    name="avx512-vnni",
    arch="x86_64",
    needs=frozenset(("avx512f", "avx512bw", "avx512vl", "avx512vnni")),
    lanes=_OWN.lanes,
    halves=halves_of_words(_OWN.lanes),
    sums4=whole_sums(_OWN.add4),
    sums8=whole_sums(_OWN.add8),
    dot8=_OWN.dot8,
    unsigned=True,
    few4=20,
    unrolled4=True,
    few8=8,
    few8_blocks=8,
    tile4=Tile(6, 2),
    tile8=Tile(6, 4),
)
