"""Numbers within the words of panels (`partc.ir.panels`), taken out one by one."""

from __future__ import annotations

from tvm.script import tirx as T

from targets.tvm.kernels.script import Expr


def half_of(pair: Expr, place: Expr | int) -> Expr:
    """The 16 bits of a float16 of two in a word: the lower ones where its place is even."""
    return T.bitwise_and(T.shift_right(pair, T.truncmod(place, 2) * 16), T.int32(0xFFFF))


def nibble_of(word: Expr, place: Expr | int) -> Expr:
    """The weight 0 … 15 at one of the 8 places of a word: the first four in the low halves of the bytes."""
    return T.bitwise_and(
        T.shift_right(word, T.truncmod(place, 4) * 8 + T.truncdiv(place, 4) * 4), T.int32(15)
    )


def byte_of(word: Expr, place: Expr | int) -> Expr:
    """The weight -128 … 127 at one of the 4 places of a word."""
    return T.shift_right(T.shift_left(word, T.int32(24) - T.truncmod(place, 4) * 8), T.int32(24))
