"""`tvm.QuantizeActivations`: activations as bytes, made once for all quantised products that read them.

| weights | a row of K numbers becomes, in words | scale |
| --- | --- | --- |
| in blocks | for every 32: 8 words of 4 bytes, the scale in float32, -8 Σ q | largest magnitude of the 32 / 127 |
| in blocks of 16 | the same, with -8 Σ q of each half | the same |
| in rows | for every 32: 8 words; behind all of them the scale in float32 | largest magnitude of the row / 127 |

The end of a row is filled up with zeros. -8 Σ q is where the sum of a block starts, so that weights of 0 … 15 need no
subtraction of their zero point, 8; 16 times that serves bytes that are moved up by 128. For weights in rows the bytes
are stored + 128 where an instruction set wants them so.

Moves 4MK + MK bytes, does some 4MK operations.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from partc.ir.panels import BLOCK
from targets.tvm.kernels.script import Buffer, Expr, prim_func, registers, store
from targets.tvm.kernels.vector import loop_of
from targets.tvm.quantized import UNIT, WORDS, row_words

_ALL = T.ramp(0, 1, BLOCK)


def quantize_blocks(M: int, K: int, depth: int, sums: int) -> Any:
    """q[M, words] of x[M, K], filled up to `depth`; a scale and so many sums for every 32 numbers."""
    words, unit = row_words(depth, sums), UNIT + sums

    def write(x: Buffer, q: Buffer) -> None:
        with loop_of(4 * M * K)(M) as row, T.serial(words // unit) as block:
            numbers = _block_of(x, row, block, K, words // unit)
            largest = T.bind(_largest(_magnitudes(numbers)))
            integers = T.bind(_steps(numbers, _inverse(largest)))
            store(q, [row, T.ramp(block * unit, 1, WORDS)], _bytes(integers))
            store(q, [row, block * unit + WORDS], _scale(largest))
            for number, part in enumerate(_equal_parts(integers, sums)):
                store(q, [row, block * unit + UNIT + number], T.int32(-8) * _sum(part))

    return prim_func({"x": ((M, K), "float32"), "q": ((M, words), "int32")}, write)


def quantize_whole(M: int, K: int, unsigned: bool) -> Any:
    """q[M, words] of x[M, K], a scale for every row, the bytes + 128 where `unsigned`."""
    words = row_words(K, 0)
    added = T.Broadcast(T.int32(128 if unsigned else 0), BLOCK)

    def write(x: Buffer, q: Buffer) -> None:
        with loop_of(4 * M * K)(M) as row:
            most = registers((BLOCK,), "int32")
            store(most, [_ALL], T.Broadcast(T.int32(0), BLOCK))
            with T.serial(words // WORDS) as block:
                store(
                    most, [_ALL], T.max(most[_ALL], _magnitudes(_block_of(x, row, block, K, words // WORDS)))
                )
            largest = T.bind(_largest(most[_ALL]))
            with T.serial(words // WORDS) as block:
                integers = _steps(_block_of(x, row, block, K, words // WORDS), _inverse(largest))
                store(q, [row, T.ramp(block * WORDS, 1, WORDS)], _bytes(integers + added))
            store(q, [row, words - 1], _scale(largest))

    return prim_func({"x": ((M, K), "float32"), "q": ((M, words), "int32")}, write)


def _block_of(x: Buffer, row: Expr, block: Expr, K: int, blocks: int) -> Expr:
    """32 numbers of a row of K that is filled up with zeros to so many blocks."""
    if blocks * BLOCK == K:
        return x[row, T.ramp(block * BLOCK, 1, BLOCK)]
    numbers = registers((BLOCK,), "float32")
    with T.serial(BLOCK) as i:
        at = block * BLOCK + i
        store(numbers, [i], T.if_then_else(at < K, x[row, T.min(at, K - 1)], T.float32(0)))
    return numbers[_ALL]


def _magnitudes(numbers: Expr) -> Expr:
    """The bits of |x|: integers in the order of the numbers, a NaN above all of them."""
    return T.bitwise_and(T.reinterpret(f"int32x{BLOCK}", numbers), T.Broadcast(T.int32(0x7FFFFFFF), BLOCK))


def _largest(magnitudes: Expr) -> Expr:
    """The largest number. LLVM would go through floats one by one, because one may be NaN."""
    most = T.call_llvm_pure_intrin("int32", "llvm.vector.reduce.smax", magnitudes)
    return T.reinterpret("float32", most)


def _equal_parts(integers: Expr, many: int) -> list[Expr]:
    width = BLOCK // many
    if many == 1:
        return [integers]
    return [
        T.Shuffle([integers], [T.int32(first + i) for i in range(width)]) for first in range(0, BLOCK, width)
    ]


def _sum(integers: Expr) -> Expr:
    return T.call_llvm_pure_intrin("int32", "llvm.vector.reduce.add", integers)


def _inverse(largest: Expr) -> Expr:
    """127 / largest; 0 for zeros."""
    return T.Select(largest > T.float32(0), T.float32(127) / largest, T.float32(0))


def _steps(numbers: Expr, inverse: Expr) -> Expr:
    """The numbers in steps, rounded to integers, halves to even ones."""
    steps = T.call_llvm_pure_intrin(f"float32x{BLOCK}", "llvm.rint", numbers * T.Broadcast(inverse, BLOCK))
    return T.Cast(f"int32x{BLOCK}", steps)


def _bytes(integers: Expr) -> Expr:
    return T.reinterpret(f"int32x{WORDS}", T.Cast(f"int8x{BLOCK}", integers))


def _scale(largest: Expr) -> Expr:
    return T.reinterpret("int32", largest * T.float32(1 / 127))
