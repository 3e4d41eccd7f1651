"""The arithmetic of an instruction set, as the kernels of quantised products need it (`quantized.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T

Expr = Any
"""A TensorIR expression, mostly a vector of `lanes` numbers."""


@dataclass(frozen=True)
class Tile:
    """Results of a product that stay in registers while the weights pass."""

    rows: int
    """Rows at most."""
    panels: int
    """Panels of 16 columns."""


def halves_of_words(lanes: int) -> Callable[[Expr], tuple[Expr, Expr]]:
    """`InstructionSet.halves` where no instruction shifts bytes."""
    low, four = T.Broadcast(T.int32(0x0F0F0F0F), lanes), T.Broadcast(T.int32(4), lanes)

    def halves(words: Expr) -> tuple[Expr, Expr]:
        return T.bitwise_and(words, low), T.bitwise_and(T.shift_right(words, four), low)

    return halves


def halves_of_bytes(words: Expr) -> tuple[Expr, Expr]:
    """`InstructionSet.halves` of NEON."""
    bytes_ = T.reinterpret("uint8x16", words)
    low = T.bitwise_and(bytes_, T.Broadcast(T.uint8(15), 16))
    high = T.shift_right(bytes_, T.Broadcast(T.uint8(4), 16))
    return T.reinterpret("int32x4", low), T.reinterpret("int32x4", high)


@dataclass(frozen=True)
class Sums:
    """Sums of weights that share a scale, word by word, in a form that may be narrower than their results.

    Vectors take each word in turn: what is repeated of the activations serves all of them, and is then forgotten.
    LLVM repeats every word of a row but once: with one vector after the other, it kept all of them on the stack.
    """

    many: int
    """Numbers of an output meanwhile."""
    dtype: str
    """Their element type."""
    begin: Callable[[Expr], Expr | None]
    """Where the sum starts, in int32 → the sums before the first word; None: what the first word makes of nothing."""
    add: Callable[[Expr | None, Expr, Expr, Expr, Expr, int], Expr]
    """(sums, weights, x, row, at, i) → the sums plus four products each, with word i of those at `at`."""
    end: Callable[[Expr, Expr], Expr]
    """(sums, start) → the results, in int32."""


def whole_sums(add: Callable[..., Expr]) -> Sums:
    """Sums in int32 from the start on."""
    return Sums(1, "int32", lambda start: start, add, lambda total, start: total)


def signed_sums(add: Callable[..., Expr], lanes: int) -> Sums:
    """Sums in int32 of products whose operands both have a sign: they start at 0."""
    return Sums(1, "int32", lambda start: T.Broadcast(T.int32(0), lanes), add, lambda total, start: total)


def moved_up(words: Expr, lanes: int) -> Expr:
    """Bytes with a sign as bytes without, 128 more."""
    return T.bitwise_xor(words, T.Broadcast(T.int32(-0x7F7F7F80), lanes))


@dataclass(frozen=True)
class InstructionSet:
    """Vectors of one width, and sums of products of bytes.

    `x` are rows of quantised activations, words of four bytes; word `i` of the 8 words of a block that start at `at`
    in `row` is `x[row, at + i]`. Weights are words too, one for each output in the lanes of a vector.
    """

    name: str
    arch: str
    """Architecture of the processor, as `Platform.arch`."""
    needs: frozenset[str]
    """LLVM's names of the features that must be enabled: without one, it ends the process at these intrinsics."""
    lanes: int
    """Outputs in a vector: 16, 8 or 4."""
    halves: Callable[[Expr], tuple[Expr, Expr]]
    """Words → the low and the high halves of their bytes."""
    sums4: Sums
    """Sums over the 32 weights of a block, 0 … 15 in 8 words, times activations; they start at -8 Σ of these."""
    sums8: Sums
    """Sums over 16 or 32 weights of a block, -128 … 127, times activations; they may start at -128 Σ of these."""
    dot8: Callable[[Expr, Expr, Expr, Expr, Expr, int], Expr]
    """(sum, weights, x, row, at, i) → sum + Σ over 4 weights, -127 … 127 in a word, times the activations of word i."""
    unsigned: bool
    """Activations for `dot8` are stored + 128, and sums start at -128 Σ w."""
    few4: int
    """Rows up to which a product unpacks the weights of 4 bits in registers, again for each tile."""
    unrolled4: bool
    """Whether, for one row, the blocks of a step of 4 bits are written one after the other; else a loop goes over them,
    which loads and stores the sums of a panel for each. For more rows a loop is faster everywhere: with eight blocks in
    a row LLVM moves loads so early that sums leave the registers."""
    few8: int
    """Rows up to which a product of 8 bits reads one panel at a time."""
    few8_blocks: int
    """The same of 8 bits in blocks: rows of a panel whose sums, of a block and of all of them, are in registers."""
    tile4: Tile
    """The tile of a prompt, weights in blocks."""
    tile8: Tile
    """The tile of a prompt, weights of 8 bits."""
    asks_ahead: bool = False
    """Whether products of few rows ask for weights before they read them."""
