"""`tvm.QuantizeActivations`: activations as bytes, made once for all quantised products that read them.

| bits of the weights | a row of K numbers becomes, in words | scale |
| --- | --- | --- |
| 4 | for every 32: 8 words of 4 bytes, the scale in float32, -8 Σ q | largest magnitude of the 32 / 127 |
| 8 | for every 32: 8 words; behind all of them the scale in float32 | largest magnitude of the row / 127 |

The end of a row is filled up with zeros. -8 Σ q is where the sum of a block starts, so that weights of 0 … 15 need no
subtraction of their zero point, 8. With 8 bits the bytes are stored + 128 where an instruction set wants them so.

Moves 4MK + MK bytes, does some 4MK operations.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from partc.ir.panels import BLOCK
from targets.tvm.kernels.script import Buffer, Expr, prim_func, registers, store
from targets.tvm.kernels.vector import loop_of
from targets.tvm.quantized import UNIT4, WORDS, row_words

_ALL = T.ramp(0, 1, BLOCK)


def quantize_blocks(M: int, K: int, depth: int) -> Any:
    """q[M, words] of x[M, K], filled up to `depth`; a scale for every 32 numbers."""
    words = row_words(depth, 4)

    def write(x: Buffer, q: Buffer) -> None:
        with loop_of(4 * M * K)(M) as row, T.serial(words // UNIT4) as block:
            numbers = _block_of(x, row, block, K, words // UNIT4)
            largest = T.bind(_largest(_magnitudes(numbers)))
            integers = T.bind(_steps(numbers, _inverse(largest)))
            store(q, [row, T.ramp(block * UNIT4, 1, WORDS)], _bytes(integers))
            store(q, [row, block * UNIT4 + WORDS], _scale(largest))
            store(q, [row, block * UNIT4 + WORDS + 1], T.int32(-8) * _sum(integers))

    return prim_func({"x": ((M, K), "float32"), "q": ((M, words), "int32")}, write)


def quantize_whole(M: int, K: int, unsigned: bool) -> Any:
    """q[M, words] of x[M, K], a scale for every row, the bytes + 128 where `unsigned`."""
    words = row_words(K, 8)
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
