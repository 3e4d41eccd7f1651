"""AVX2: `vpmaddubsw` adds two products of unsigned and signed bytes in 16 bits.

Of 4 bits, a block of 32 stays below 8 · 2 · 15 · 127 = 30480 < 2¹⁵, so that one `vpmaddwd` at its end widens the sums.
Of 8 bits, the unsigned side is the magnitude of the activations, and the weights take their signs (`vpsignb`): no
pair is larger than 2 · 127 · 127 = 32258. In blocks weights may be -128, whose sign cannot change: there it is their
magnitude, once for all rows, and the activations take their signs.
"""

from __future__ import annotations

from tvm.script import tirx as T

from targets.tvm.kernels.instructions.contract import (
    Expr,
    InstructionSet,
    Sums,
    Tile,
    halves_of_words,
    signed_sums,
)


def _pairs(unsigned: Expr, signed: Expr) -> Expr:
    return T.call_llvm_pure_intrin(
        "int16x16", "llvm.x86.avx2.pmadd.ub.sw", T.reinterpret("uint8x32", unsigned), signed
    )


def _widened(pairs: Expr) -> Expr:
    return T.call_llvm_pure_intrin("int32x8", "llvm.x86.avx2.pmadd.wd", pairs, T.Broadcast(T.int16(1), 16))


def _bytes(x: Expr, row: Expr, at: Expr) -> Expr:
    return T.reinterpret("int8x32", T.Broadcast(x[row, at], 8))


def _add4(total: Expr | None, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    pairs = _pairs(weight, _bytes(x, row, at + i))
    return pairs if total is None else total + pairs


def _dot8(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    activations = _bytes(x, row, at + i)
    magnitudes = T.call_llvm_pure_intrin("int8x32", "llvm.abs", activations, T.bool(False))
    signed = T.call_llvm_pure_intrin(
        "int8x32", "llvm.x86.avx2.psign.b", T.reinterpret("int8x32", weight), activations
    )
    return total + _widened(_pairs(magnitudes, signed))


def _add8(total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
    weights = T.reinterpret("int8x32", weight)
    magnitudes = T.call_llvm_pure_intrin("int8x32", "llvm.abs", weights, T.bool(False))
    signed = T.call_llvm_pure_intrin("int8x32", "llvm.x86.avx2.psign.b", _bytes(x, row, at + i), weights)
    return total + _widened(_pairs(magnitudes, signed))


AVX2 = InstructionSet(
    name="avx2",
    arch="x86_64",
    needs=frozenset(("avx2", "fma", "f16c")),
    lanes=8,
    halves=halves_of_words(8),
    sums4=Sums(2, "int16", lambda start: None, _add4, lambda total, start: _widened(total) + start),
    sums8=signed_sums(_add8, 8),
    dot8=_dot8,
    unsigned=False,
    few4=8,
    unrolled4=True,
    few8=8,
    few8_blocks=2,
    tile4=Tile(2, 1),
    tile8=Tile(3, 1),
)
