"""AVX-512 VNNI: `vpdpbusd` adds four products of unsigned and signed bytes to each of 16 sums."""

from __future__ import annotations

from tvm.script import tirx as T

from targets.tvm.kernels.instructions.contract import (
    Expr,
    InstructionSet,
    Tile,
    halves_of_words,
    moved_up,
    whole_sums,
)


def _dot(total: Expr, unsigned: Expr, signed: Expr) -> Expr:
    """LLVM 22 wants bytes where older ones wanted words."""
    return T.call_llvm_pure_intrin(
        "int32x16", "llvm.x86.avx512.vpdpbusd.512", total,
        T.reinterpret("uint8x64", unsigned), T.reinterpret("int8x64", signed),
    )  # fmt: skip


def _add4(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    return _dot(total, weight, T.Broadcast(x[row, at + i], 16))


def _add8(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    return _dot(total, moved_up(weight, 16), T.Broadcast(x[row, at + i], 16))


def _dot8(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    return _dot(total, T.Broadcast(x[row, at + i], 16), weight)


AVX512_VNNI = InstructionSet(
    name="avx512-vnni",
    arch="x86_64",
    needs=frozenset(("avx512f", "avx512bw", "avx512vl", "avx512vnni")),
    lanes=16,
    halves=halves_of_words(16),
    sums4=whole_sums(_add4),
    sums8=whole_sums(_add8),
    dot8=_dot8,
    unsigned=True,
    few4=20,
    unrolled4=True,
    few8=8,
    few8_blocks=8,
    tile4=Tile(6, 2),
    tile8=Tile(6, 4),
)
