"""What the kernels of products have in common: sizes, parameters, and which of several products a block computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T

from partc.ir.panels import LANES, panels_shape
from partc.ir.weight_formats import FORMATS
from targets.tvm.kernels.script import Buffer, Expr
from targets.tvm.layout import PANEL

Finish = Callable[[list[Expr], Expr, Expr], Expr]
"""Sums by weight and what is added, row, column → what is written there."""


@dataclass(frozen=True)
class Shape:
    """x [M, K] times a weight with N columns; of a quantised one the depth is filled up with zeros behind K."""

    stored: str
    """The name of a format of quantised weights, or the type of floats."""
    M: int
    K: int
    N: int
    depth: int
    threads: int
    """The most that a block may have."""
    block: int = 0
    """Weights of a column that share a scale; 0: all of them."""
    has_tensor_cores: bool = False
    epsilon: float = 0.0
    """Of the RMS norm that x goes through first; 0: of none. Its factors are the last tensor that a kernel reads."""

    @property
    def bits(self) -> int | None:
        """Of a quantised weight; None for floats."""
        return FORMATS[self.stored].bits if self.stored in FORMATS else None

    @property
    def weight(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of the weight."""
        if self.bits is not None:
            return panels_shape(self.N, self.depth, self.bits, self.block), "int32"
        return (math.ceil(self.N / PANEL), self.K, PANEL), self.stored

    @property
    def panels(self) -> int:
        """Panels of 16 columns."""
        return math.ceil(self.N / LANES)

    @property
    def has_block_scales(self) -> bool:
        """Whether a column has a scale for every block of its depth, and not one for all."""
        return self.block > 0


class Matrix:
    """One matrix of several in a tensor; reads as a tensor of its own."""

    def __init__(self, w: Buffer, number: Expr) -> None:
        self._w, self._number = w, number

    def __getitem__(self, places: tuple[Expr, ...]) -> Expr:
        return self._w[(self._number, *places)]


def parameters_of(
    shapes: Sequence[Shape], added: tuple[int, int] | None = None, results: int = 1
) -> dict[str, tuple[Sequence[int], str]]:
    """The tensors of a kernel: x, the weights, what is added to their product, factors of a norm, and results."""
    found: dict[str, tuple[Sequence[int], str]] = {"x": ((shapes[0].M, shapes[0].K), "float32")}
    found.update({f"w{place}": s.weight for place, s in enumerate(shapes)})
    if added is not None:
        found["added"] = (added, "float32")
    if shapes[0].epsilon:
        found["factors"] = ((shapes[0].K,), "float32")
    found.update({f"y{place}": ((s.M, s.N), "float32") for place, s in enumerate(shapes[:results])})
    return found


def select(counts: Sequence[int], place: Expr, write: Callable[[int, Expr], None], number: int = 0) -> None:
    """Write for the product that a block belongs to, and its place there; blocks are counted through all of them."""
    if number == len(counts) - 1:
        write(number, place)
        return
    with T.If(place < counts[number]):
        with T.Then():
            write(number, place)
        with T.Else():
            select(counts, place - counts[number], write, number + 1)


def scaled(s: Shape, w: Any, total: Expr, column: Expr) -> Expr:
    """A sum over all of the depth times the scale of its column, where there is one."""
    if s.bits is None or s.has_block_scales:
        return total
    return total * T.reinterpret("float32", w[column // LANES, 1, column % LANES])
