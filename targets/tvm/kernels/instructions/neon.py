"""NEON alone, of processors before Armv8.2: `smull` and `smlal` multiply bytes, with products and sums of 16 bits.

Of 4 bits, a block of 32 stays below 8 · 15 · 127 = 15240 in a lane, and twice that in a sum of neighbours: < 2¹⁵, so
that one `addp` and one `sadalp` at its end make sums of four neighbours, which are the outputs.
Of 8 bits, a pair of products is at most 2 · 128 · 127 = 32512: `addp` and `sadalp` follow every word.
"""

from __future__ import annotations

from tvm.script import tirx as T

from targets.tvm.kernels.instructions.contract import (
    Expr,
    InstructionSet,
    Sums,
    Tile,
    halves_of_bytes,
    signed_sums,
)


def _products(weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    """16 products of bytes with word i of the eight at `at`.

    `tbl` repeats the word, which becomes a `dup`: where LLVM knows that the halves of a vector are equal, it multiplies
    the low one alone, and moves the upper half of the weights down for that, one instruction more for two.
    """
    four = T.reinterpret("int8x16", x[row, T.ramp(at + i // 4 * 4, 1, 4)])
    places = T.reinterpret("int8x16", T.Broadcast(T.int32(0x03020100 + 0x04040404 * (i % 4)), 4))
    activations = T.call_llvm_pure_intrin("int8x16", "llvm.aarch64.neon.tbl1.v16i8", four, places)
    return T.Cast("int16x16", T.reinterpret("int8x16", weight)) * T.Cast("int16x16", activations)


def _added(total: Expr, products: Expr) -> Expr:
    """The sums plus four neighbours each."""
    halves = [T.Shuffle([products], [T.int32(first + i) for i in range(8)]) for first in (0, 8)]
    pairs = T.call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.addp.v8i16", *halves)
    return total + T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", pairs)


def _add4(total: Expr | None, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    products = _products(weight, x, row, at, i)
    return products if total is None else total + products


def _dot8(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    return _added(total, _products(weight, x, row, at, i))


NEON = InstructionSet(
    name="neon",
    arch="aarch64",
    needs=frozenset(("neon",)),
    lanes=4,
    halves=halves_of_bytes,
    sums4=Sums(4, "int16", lambda start: None, _add4, lambda total, start: _added(start, total)),
    sums8=signed_sums(_dot8, 4),
    dot8=_dot8,
    unsigned=False,
    few4=2,
    unrolled4=False,
    few8=2,
    few8_blocks=1,
    tile4=Tile(1, 1),
    tile8=Tile(2, 1),
)
