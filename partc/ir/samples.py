"""Sizes as functions of symbols: run a few concrete sizes, then fit expressions to what comes out.

A size that is a polynomial of degree two in the symbols (`batch*sequence + 1`) has few coefficients, so a
handful of samples determine it and the others check it; every coefficient is rational and the fit is
verified in integers. Quotients (`(height + 1)//2`) are told to `Samples.name` by the operator that makes
them, and are building blocks from then on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from partc.format.dims import Dim, evaluate

Vector = tuple[int, ...]
"""One number a sample."""

_PRIMES = (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
_STRIDES = (1, 3, 5, 7, 9, 11, 13)
"""Strides of the symbols in their lists of samples, so that symbols vary independently."""
_MAX_DENOMINATOR = 64
_QUARTERS = 4
"""Steps in which sizes are spread up to the largest."""


class Samples:
    """Concrete values for every symbol, and the expressions that fit what was computed from them."""

    def __init__(
        self, symbols: Sequence[str], largest: Mapping[str, int], scale: int = 1, offset: int = 0
    ) -> None:
        """Choose samples: primes to fit expressions to, then sizes up to the largest that check them.

        The second kind is 1 and four quarters of the largest value, for each symbol alone and for all of
        them together. What compares a sum of sizes with a number is greatest or least there, so that it is
        never taken for constant where it changes; a predicate that changes twice between two samples is.

        Args:
            symbols: names of the sizes that are not fixed.
            largest: largest value of those that have one.
            scale: multiply every sample by this, for graphs that need sizes which they can halve (U-Net).
            offset: add this to every sample, for graphs that cut something off (unpadded convolutions); at
                most three quarters of the largest value, since what holds beyond that is of no interest.
        """
        self.symbols = tuple(symbols)
        self.monomials = list(_monomials(self.symbols))
        count = len(self.monomials) + 5
        axes = [_Axis(largest.get(name), scale, offset) for name in self.symbols]
        columns = [axis.fitting(index, count) for index, axis in enumerate(axes)]
        fitting = list(zip(*columns, strict=True)) if columns else [()]
        rows = dict.fromkeys([*fitting, *_spread(axes)])
        self.bindings = [dict(zip(self.symbols, row, strict=True)) for row in rows]
        self._names: dict[Vector, Dim | None] = {}
        self._atoms: dict[Vector, str] = {}
        self._design = np.array(
            [[evaluate(m or "1", b) for m in self.monomials] for b in self.bindings], dtype=object
        )
        # Squares of the largest sizes would cost the fit its digits; they only check it, in whole numbers.
        self._fitted = len(dict.fromkeys(fitting))
        small = self._design[: self._fitted].astype(np.float64)
        weights = np.abs(small).max(axis=0)
        self._scale = np.where(weights == 0, 1.0, weights)
        self._inverse = np.linalg.pinv(small / self._scale)

    def vector(self, dim: Dim) -> Vector | None:
        """The value of `dim` in every sample; None where it has a symbol that is not sampled."""
        try:
            return tuple(evaluate(dim, binding) for binding in self.bindings)
        except KeyError:
            return None

    def dim(self, vector: Vector) -> Dim | None:
        """The simplest expression that has these values; None where there is none of our kind."""
        if vector not in self._names:
            self._names[vector] = self._fit(vector)
        return self._names[vector]

    def name(self, vector: Vector, text: str) -> None:
        """Make `text` a building block if it has these values and nothing simpler does."""
        if self.dim(vector) is None and self.vector(text) == vector:
            self._atoms[vector] = text
            self._names = {known: dim for known, dim in self._names.items() if dim is not None}
            self._names[vector] = text

    def _fit(self, vector: Vector) -> Dim | None:
        if len(set(vector)) == 1:
            return vector[0]
        return self._polynomial(vector) or self._of_atoms(vector)

    def _polynomial(self, vector: Vector) -> Dim | None:
        raw = self._inverse @ np.array(vector[: self._fitted], dtype=np.float64) / self._scale
        coefficients = [Fraction(float(c)).limit_denominator(_MAX_DENOMINATOR) for c in raw]
        if sum(c != 0 for c in coefficients) > 6:
            return None
        denominator = math.lcm(*(c.denominator for c in coefficients))
        whole = [int(c * denominator) for c in coefficients]
        if any(int(made) != v * denominator for made, v in zip(self._design @ whole, vector, strict=True)):
            return None
        text = _sum_text(whole, self.monomials)
        if denominator == 1:
            return text
        return f"{text if text.isidentifier() else f'({text})'}//{denominator}"

    def _of_atoms(self, vector: Vector) -> Dim | None:
        for values, text in itertools.chain(self._atoms.items(), self._products()):
            factor = text if text.isidentifier() else f"({text})"
            if (line := _line(values, vector)) is not None:
                return _sum_text(list(line), [factor, ""]) if line != (1, 0) else text
        return None

    def _products(self) -> Iterator[tuple[Vector, str]]:
        symbols = [(self.vector(name), name) for name in self.symbols]
        factors = [*self._atoms.items(), *((v, name) for v, name in symbols if v is not None)]
        for (left, a), (right, b) in itertools.combinations_with_replacement(factors, 2):
            texts = (t if t.isidentifier() else f"({t})" for t in (a, b))
            yield tuple(x * y for x, y in zip(left, right, strict=True)), "*".join(texts)


def _monomials(symbols: Sequence[str]) -> Iterator[str]:
    """Products of two symbols, symbols, and the empty product, in the order in which sizes are written."""
    yield from ("*".join(pair) for pair in itertools.combinations_with_replacement(symbols, 2))
    yield from symbols
    yield ""


@dataclass(frozen=True)
class _Axis:
    """The samples of one symbol."""

    largest: int | None
    scale: int
    offset: int

    def fitting(self, index: int, count: int) -> list[int]:
        """Primes, in another order for each symbol."""
        fits = self.largest is None or self.largest < 16
        values = [p for p in _PRIMES if fits or p < (self.largest or 0)]
        stride = _STRIDES[index % len(_STRIDES)]
        while math.gcd(stride, len(values)) > 1:
            stride += 1
        # the square term spreads samples of symbols whose lists are shorter than the number of samples
        order = [(i * stride + index + i * i // len(values)) % len(values) for i in range(count)]
        return [values[i] * self.scale + self._addend for i in order]

    def quarter(self, number: int) -> int:
        """The smallest sample and quarters of the way from there to the largest value."""
        low = self.scale + self._addend
        high = self.largest or _PRIMES[-1] * self.scale + self._addend
        size = low + (high - low) * number // _QUARTERS
        return max(self.scale, size - size % self.scale)

    @property
    def _addend(self) -> int:
        return self.offset if self.largest is None else min(self.offset, self.largest * 3 // 4)


def _spread(axes: Sequence[_Axis]) -> Iterator[Vector]:
    """Samples that reach the largest sizes: each symbol alone, then all together."""
    low = tuple(axis.quarter(0) for axis in axes)
    for number in range(_QUARTERS + 1):
        for index, axis in enumerate(axes):
            yield (*low[:index], axis.quarter(number), *low[index + 1 :])
        yield tuple(axis.quarter(number) for axis in axes)


def _line(values: Vector, vector: Vector) -> tuple[int, int] | None:
    """(a, b) with vector = a * values + b."""
    low, high = (
        min(range(len(values)), key=values.__getitem__),
        max(range(len(values)), key=values.__getitem__),
    )
    if values[low] == values[high]:
        return None
    slope, rest = divmod(vector[high] - vector[low], values[high] - values[low])
    offset = vector[low] - slope * values[low]
    matches = rest == 0 and all(slope * x + offset == y for x, y in zip(values, vector, strict=True))
    return (slope, offset) if matches else None


def _sum_text(coefficients: Sequence[int], monomials: Sequence[str]) -> str:
    terms = [(c, m) for c, m in zip(coefficients, monomials, strict=True) if c]
    text = ""
    for c, monomial in terms:
        size = monomial if abs(c) == 1 and monomial else f"{abs(c)}*{monomial}" if monomial else str(abs(c))
        sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
        text += sign + size
    return text or "0"
