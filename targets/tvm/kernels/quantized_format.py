"""Sizes of products with quantised weights: what a kernel is written for, and how its rows fall into tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm.script import tirx as T

from partc.ir.panels import LANES, panels_shape
from partc.ir.weight_formats import by_format
from targets.tvm.kernels.instructions import InstructionSet, Tile
from targets.tvm.kernels.script import Expr
from targets.tvm.quantized import row_words, sums_of

_TILE_COST = 0.6
"""The cost of a tile beside its rows, in rows: weights and sums are loaded once for all of them."""
PANELS4 = 4
"""Panels of 4 bits that alternate in memory."""

Row = Callable[[int], Expr]
"""Number of a row in a tile → its number in x and y."""


@dataclass(frozen=True)
class Format:
    """A product of M rows with a weight [N, K] of a format, for one instruction set; K is filled up to blocks."""

    isa: InstructionSet
    bits: int
    block: int
    """Weights of a row that share a scale; 0: all of them."""
    M: int
    K: int
    N: int

    @property
    def x_type(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of the rows of activations."""
        return (self.M, row_words(self.K, self.sums)), "int32"

    @property
    def w_type(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of a weight."""
        return panels_shape(self.N, self.K, self.bits, self.block), "int32"

    @property
    def y_type(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of the result."""
        return (self.M, self.N), "float32"

    @property
    def sums(self) -> int:
        """Sums of 32 activations that x has; see `sums_of`."""
        return sums_of(self.bits, self.block)

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.M * self.K * self.N

    @property
    def is_few(self) -> bool:
        """Whether weights are read as they are stored, for few rows."""
        isa = self.isa
        few = by_format(self.bits, self.block, int4=isa.few4, int8=isa.few8, int8_blocks=isa.few8_blocks)
        return few >= self.M

    @property
    def tile(self) -> Tile:
        """Rows and panels whose sums are in registers at a time."""
        most = by_format(
            self.bits, self.block, int4=self._most4, int8=self._most8, int8_blocks=self._most8_blocks
        )
        return Tile(_rows_of_tile(self.M, most.rows), most.panels)

    @property
    def _most4(self) -> Tile:
        return Tile(self.isa.few4, PANELS4) if self.is_few else self.isa.tile4

    @property
    def _most8(self) -> Tile:
        return self._within(Tile(self.isa.few8, 1) if self.is_few else self.isa.tile8)

    @property
    def _most8_blocks(self) -> Tile:
        return self._within(Tile(self.isa.few8_blocks, 1) if self.is_few else self.isa.tile4)

    def _within(self, most: Tile) -> Tile:
        return Tile(most.rows, min(most.panels, self.panels))

    @property
    def panels(self) -> int:
        """Panels of all columns."""
        return math.ceil(self.N / LANES)

    @property
    def group(self) -> int:
        """Panels of a group, which a thread takes whole."""
        panels = self.tile.panels
        return by_format(self.bits, self.block, int4=PANELS4, int8=panels, int8_blocks=panels)

    @property
    def groups(self) -> int:
        """Groups of panels; of 8 bits the last one reaches back over the one before."""
        return math.ceil(self.panels / self.group)

    @property
    def vectors(self) -> range:
        """First lanes of the vectors of a panel."""
        return range(0, LANES, self.isa.lanes)

    def lanes(self, first: Expr) -> Expr:
        """The places of a vector."""
        return T.ramp(first, 1, self.isa.lanes)

    def all(self, number: Expr) -> Expr:
        """A vector of equal numbers."""
        return T.Broadcast(number, self.isa.lanes)

    def float32(self, numbers: Expr) -> Expr:
        """A vector as float32."""
        return T.Cast(f"float32x{self.isa.lanes}", numbers)

    def float32_bits(self, words: Expr) -> Expr:
        """A vector of the bits of float32."""
        return T.reinterpret(f"float32x{self.isa.lanes}", words)


def _rows_of_tile(many: int, most: int) -> int:
    """Rows of a tile with which so many take the least time: the last tile computes some of them again."""
    return min(range(1, most + 1), key=lambda rows: (math.ceil(many / rows) * (rows + _TILE_COST), -rows))


@dataclass(frozen=True)
class Rows:
    """The rows of a product, in tiles."""

    tiles: Expr
    of: Callable[[Expr], Row]
    """Tile → its rows."""


def in_order(f: Format) -> Rows:
    """All rows; the last tile reaches back over the one before, and computes the same there again."""

    def of(tile: Expr) -> Row:
        first = T.bind(T.min(tile * f.tile.rows, f.M - f.tile.rows))
        return lambda r: first + r

    return Rows(math.ceil(f.M / f.tile.rows), of)
