"""AVX-VNNI: `vpdpbusd` on vectors of 256 bits, of processors without AVX-512."""

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
    return T.call_llvm_pure_intrin(
        "int32x8", "llvm.x86.avx512.vpdpbusd.256", total,
        T.reinterpret("uint8x32", unsigned), T.reinterpret("int8x32", signed),
    )  # fmt: skip


def _add4(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    return _dot(total, weight, T.Broadcast(x[row, at + i], 8))


def _add8(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    return _dot(total, moved_up(weight, 8), T.Broadcast(x[row, at + i], 8))


def _dot8(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    return _dot(total, T.Broadcast(x[row, at + i], 8), weight)


AVX_VNNI = InstructionSet(
    name="avx-vnni",
    arch="x86_64",
    needs=frozenset(("avx2", "fma", "f16c", "avxvnni")),
    lanes=8,
    halves=halves_of_words(8),
    sums4=whole_sums(_add4),
    sums8=whole_sums(_add8),
    dot8=_dot8,
    unsigned=True,
    few4=8,
    unrolled4=True,
    few8=8,
    few8_blocks=3,
    tile4=Tile(3, 1),
    tile8=Tile(3, 2),
)
