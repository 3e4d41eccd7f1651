"""NEON with dotprod: `sdot` adds four products of signed bytes to each of 4 sums.

Both operands are signed: weights of 4 bits lie in 0 … 15, and those of 8 bits have a sign. A word of activations is a
lane of a register of four (`sdot v.4s, v.16b, v.4b[i]`), so that no instruction repeats it.

The code of one block repeats for the panels of a step: with eight blocks in a row, LLVM moves loads so early that sums
leave the registers.
Processors with i8mm use these kernels, too. `usdot` multiplies as many numbers as `sdot`, and no operand here needs to
be unsigned; `smmla` multiplies twice as many, but by two rows of activations at once, so a product with one row, which
the memory bounds, gains nothing.
"""

from __future__ import annotations

from tvm.script import tirx as T

from targets.tvm.kernels.instructions.contract import (
    Expr,
    InstructionSet,
    Tile,
    halves_of_bytes,
    signed_sums,
    whole_sums,
)


def _dot(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    """The sum plus four products with word i of the eight at `at`."""
    four = x[row, T.ramp(at + i // 4 * 4, 1, 4)]
    word = T.Shuffle([four], [T.int32(i % 4)] * 4)
    return T.call_llvm_pure_intrin(
        "int32x4", "llvm.aarch64.neon.sdot.v4i32.v16i8", total,
        T.reinterpret("int8x16", weight), T.reinterpret("int8x16", word),
    )  # fmt: skip


NEON_DOTPROD = InstructionSet(
    name="neon-dotprod",
    arch="aarch64",
    needs=frozenset(("neon", "dotprod")),
    lanes=4,
    halves=halves_of_bytes,
    sums4=whole_sums(_dot),
    sums8=signed_sums(_dot, 4),
    dot8=_dot,
    unsigned=False,
    few4=2,
    unrolled4=False,
    few8=4,
    few8_blocks=2,
    tile4=Tile(2, 1),
    tile8=Tile(4, 1),
)
