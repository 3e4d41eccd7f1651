"""Sizes of attention kernels, the work that a thread takes at a time, and the tiles that it is done in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T

from partc.format.layouts import PANEL
from partc.ir.operators.attention import Visibility
from targets.tvm.kernels.float_tiles import NARROW
from targets.tvm.kernels.instructions import Tile

BLOCK_ROWS = 48
"""Queries that one thread takes at a time at most: keys are read once for all of them."""


@dataclass(frozen=True)
class Sizes:
    """The parameters of one attention, for which its kernel is made."""

    batch: int
    heads: int
    rows: int
    d: int
    kv_heads: int
    keys: int
    e: int
    scale: float
    seen: Visibility
    softcap: float = 0.0
    rows_first: bool = False
    """Whether the result is [batch, rows, heads, e], which the next product reads, or [batch, heads, rows, e]."""
    mask: tuple[int, ...] = ()
    """Shape of the mask; empty: there is none."""
    mask_dtype: str = "int64"
    sinks: bool = False
    quantized: bool = False
    """Whether keys and values are numbers of 8 bits, with a scale for each."""
    stored: str = "float32"
    """The type of keys and values."""
    scales: str = "float32"
    """The type of those scales."""
    tile: Tile = NARROW
    """Queries and panels whose sums stay in registers."""

    @property
    def panels(self) -> int:
        """Panels of keys of one head."""
        return math.ceil(self.keys / PANEL)

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        inner = (self.rows, self.heads) if self.rows_first else (self.heads, self.rows)
        return (self.batch, *inner, self.e)

    def place(self, b: Any, h: Any, s: Any, column: Any) -> tuple[Any, Any, Any, Any]:
        """The place in the result of a number of head h and row s."""
        return (b, s, h, column) if self.rows_first else (b, h, s, column)

    @property
    def task(self) -> Task:
        """The work that a thread takes at a time."""
        group, blocks = self.heads // self.kv_heads, math.ceil(self.rows / BLOCK_ROWS)
        queries = math.ceil(self.rows / blocks)  # of nearly equal height: 64 rows in blocks of 48 would be 96
        most = max(1, BLOCK_ROWS // queries)
        heads = next(count for count in range(min(group, most), 0, -1) if group % count == 0)
        return Task(heads, queries, blocks)


@dataclass(frozen=True)
class Task:
    """Queries of heads that share keys: row i is query i % queries of head i // queries."""

    heads: int
    queries: int
    blocks: int
    """Blocks of so many queries; the last one reaches back over the one before."""

    @property
    def rows(self) -> int:
        """Queries of all its heads."""
        return self.heads * self.queries

    def head(self, row: Any) -> Any:
        """The head of a row, counted within the task."""
        return 0 if self.heads == 1 else row if self.queries == 1 else T.truncdiv(row, self.queries)

    def query(self, row: Any) -> Any:
        """The query of a row, counted within the task."""
        return row if self.heads == 1 else 0 if self.queries == 1 else T.truncmod(row, self.queries)


@dataclass(frozen=True)
class Tiles:
    """The rows of a task in tiles whose sums stay in registers; the last tile reaches back over the one before."""

    rows: int
    """Rows of a tile."""
    count: int
    parts: int
    """Sums of a row for parts of one product: a core needs several additions in flight."""
    panels: int
    """Panels of keys at a time."""
    width: int
    """Columns of values that lie in a vector."""
    columns: int
    """Vectors of columns that are weighed at a time."""
    groups: int
    """Groups of so many vectors; the last one reaches back."""


def tiles_for(z: Sizes) -> Tiles:
    """Tiles of nearly equal height, and as many sums of a row as there are registers for.

    Parts decide about the order of additions, and are the same for every processor.
    """
    sums = z.tile.rows * z.tile.panels
    count = math.ceil(z.task.rows / (z.tile.rows if z.task.rows > sums else sums))
    rows = math.ceil(z.task.rows / count)
    parts = next(n for n in (4, 2, 1) if n * rows <= max(NARROW.rows, rows) and z.d % n == 0)
    panels = max(1, min(z.tile.panels, z.panels, sums // (parts * rows)))
    width = min(PANEL, z.e)
    columns = min(z.e // width, max(1, sums // rows))
    return Tiles(rows, count, parts, panels, width, columns, math.ceil(z.e / (columns * width)))
