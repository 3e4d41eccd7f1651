"""Weights that a checkpoint stores as integers of 4 bits which int4 can hold as they are.

| source | block | as int4 |
| --- | --- | --- |
| `rows |> decode(Q4_0)` | 32 | exactly, blocks rearranged |
| `rows |> decode(Q4_1)` | 32 | with offsets |
| `rows |> decode(Q4_K)` | 32 | with offsets; scales are rounded to float16 |
| `scaled(block, words |> bits(4) |> cast(i16) |> add(-8), scales)` | 16 … 256 | exactly: symmetric GPTQ and its like |
| the same with other zero points | 16 … 256 | with offsets (8 - z) · scale: GPTQ, AWQ and their like |

Rows chosen, joined or cast do not change what they are. Permuted inputs and blocks that end within a row do: such
weights are floats like all others, and may be quantised anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from partc.ir.graph import Graph, Weight
from partc.ir.weights import STORED_STEPS, Join, Step, WeightExpr

BITS = 4
_BLOCKS = (16, 32, 64, 128, 256)
_BLOCK = 32
"""Weights that share a scale, in GGUF's formats of 4 bits."""
KEPT_BLOCKS = {"Q4_0": (18, 1), "Q4_1": (20, 1), "Q4_K": (144, 8)}
"""Formats of GGUF's blocks that int4 holds → bytes of a block, and how many of its own lie in one."""
_FLOATS = frozenset({"f32", "f16", "bf16"})


@dataclass(frozen=True)
class StoredIntegers:
    """A matrix [N, K] of integers of 4 bits and their scales, both by rows."""

    data: WeightExpr
    layout: str
    """Of the data, and of the scales where they lie in it: `partc.ir.encodings.integers`."""
    scales: WeightExpr
    scales_layout: str
    block: int
    offsets: WeightExpr | None = None
    """f32[N, blocks], where zero is not stored as 8."""

    @property
    def pair(self) -> tuple[WeightExpr, WeightExpr]:
        """The sources of the data u8[N, blocks, block / 2] and of the scales f32[N, blocks]."""
        return (
            Step("integers", (BITS, self.block, self.layout), self.data),
            Step("factors", (BITS, self.block, self.scales_layout), self.scales),
        )

    def by_rows(self, change: Callable[[WeightExpr], WeightExpr]) -> StoredIntegers:
        """The same with what only chooses or orders rows."""
        offsets = self.offsets
        if isinstance(offsets, Step) and offsets.op == "offsets":
            offsets = Step(offsets.op, offsets.arguments, change(offsets.source))
        elif offsets is not None:
            offsets = change(offsets)
        return replace(self, data=change(self.data), scales=change(self.scales), offsets=offsets)


def stored_integers(source: WeightExpr | None, columns: int) -> StoredIntegers | None:
    """The integers of a matrix with so many columns; None where it is not stored so; O(parts)."""
    found = None if source is None else _found(source)
    return None if found is None or columns % found.block else found


def has_stored_integers(graph: Graph) -> bool:
    """Whether any matrix of a graph is stored so, seen as it is or turned."""
    return any(
        is_stored(value) for node in graph.nodes for value in node.operands if isinstance(value, Weight)
    )


def is_stored(weight: Weight, *, offsets: bool = True) -> bool:
    """Whether a weight is such a matrix, as it is or turned, or experts each of which is one; with offsets or not."""
    sizes = [cast("int", size) for size in weight.shape or ()]
    if weight.source is None:
        return False
    if len(sizes) == 3 and isinstance(weight.source, Join) and weight.source.op == "stack":
        return all(_is_matrix(part, sizes[1], sizes[2], offsets=False) for part in weight.source.parts)
    return len(sizes) == 2 and _is_matrix(weight.source, *sizes, offsets=offsets)


def _is_matrix(source: WeightExpr, rows: int, columns: int, *, offsets: bool = True) -> bool:
    """Whether a matrix of that shape is stored so, as it is or turned; with offsets or not."""
    if isinstance(source, Step) and source.op == "transpose" and source.arguments == (1, 0):
        source, columns = source.source, rows
    found = stored_integers(source, columns)
    return found is not None and (offsets or found.offsets is None)


def _found(source: WeightExpr) -> StoredIntegers | None:
    match source:
        case Step(op="decode", arguments=(str(form),), source=rows) if form in KEPT_BLOCKS:
            added = None if form == "Q4_0" else Step("offsets", (BITS, _BLOCK, form), rows)
            return StoredIntegers(rows, form, rows, form, _BLOCK, added)
        case Join(op="scaled", argument=block, parts=(data, scales, *zeros)) if block in _BLOCKS:
            return _with_zeros(int(block), data, scales, *zeros)
        case Step(op="cast", arguments=(str(kind),), source=inner) if kind in _FLOATS:
            return _found(inner)
        case Step(op="slice", arguments=(0, *_) as arguments, source=inner):
            found = _found(inner)
            return found and found.by_rows(lambda rows: Step("slice", tuple(arguments), rows))
        case Join(op="concat", argument=0, parts=parts):
            return _joined([_found(part) for part in parts])
        case _:
            return None


def _with_zeros(
    block: int, data: WeightExpr, scales: WeightExpr, zeros: WeightExpr | None = None
) -> StoredIntegers | None:
    """Integers less zero points of their own, or less a number that all of them share."""
    shared = 0
    if zeros is None and isinstance(data, Step) and data.op == "add":
        shared, data = -cast("int", data.arguments[0]), data.source
    stored = _integers(data)
    if stored is None:
        return None
    offsets: WeightExpr | None = None
    if zeros is not None:
        above = Step("add", (8,), Step("mul", (-1,), zeros))
        offsets = Join("scaled", 1, (above, scales))
    elif shared != 8:
        offsets = Step("mul", (float(8 - shared),), Step("cast", ("f32",), scales))
    return StoredIntegers(*stored, scales, "plain", block, offsets)


def _integers(data: WeightExpr) -> tuple[WeightExpr, str] | None:
    """Integers 0 … 15 as they are stored, and their layout."""
    match data:
        case Step(op="cast", arguments=("i16",), source=Step(op="bits", arguments=(4,), source=words)):
            return words, "words"
        case Step(op="bits", arguments=(4,), source=words):
            return words, "words"
        case Step(
            op="transpose",
            source=Step(op="cast", source=Step(op="order", source=Step(op="bits", arguments=(4,)))),
        ):
            return data, "fields"
        case _:
            return None


def _joined(parts: list[StoredIntegers | None]) -> StoredIntegers | None:
    known = [part for part in parts if part is not None]
    forms = {(part.layout, part.scales_layout, part.block, part.offsets is None) for part in known}
    if len(known) < len(parts) or len(forms) != 1:
        return None
    offsets = tuple(part.offsets for part in known if part.offsets is not None)
    return replace(
        known[0],
        data=Join("concat", 0, tuple(part.data for part in known)),
        scales=Join("concat", 0, tuple(part.scales for part in known)),
        offsets=Join("concat", 0, offsets) if offsets else None,
    )


def blocks_together(source: WeightExpr | None) -> int:
    """The number of blocks of a row of data that cannot be parted."""
    if isinstance(source, Step) and source.op in STORED_STEPS:
        return KEPT_BLOCKS.get(str(source.arguments[2]), (0, 1))[1]
    return 1


def sliced(source: Step, axis: int, first: int, last: int) -> Step:
    """Some rows, or some blocks of every row, of data, scales or offsets."""
    _, block, layout = source.arguments
    size, together = KEPT_BLOCKS.get(str(layout), (0, 1))
    if axis == 1 and size:
        first, last = first // together * size, last // together * size
    elif axis == 1 and source.op == "integers":
        unit = int(block) // (1 if layout == "fields" else 8)
        first, last = first * unit, last * unit
    return Step(source.op, source.arguments, Step("slice", (axis, first, last), source.source))
