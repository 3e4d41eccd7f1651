"""Weights that a checkpoint stores as integers which a format holds as they are: int4, or int8_blocks.

| source | block | format |
| --- | --- | --- |
| `rows |> decode(NAME)`, blocks of GGUF | of `KEPT_BLOCKS` | by name; with offsets where blocks have minima |
| `scaled(block, words |> bits(b) |> cast(i16) |> add(-z), scales)` | 16 n, rows | to 4 bits int4, else int8_blocks |
| the same with a zero point for each block | the same | with offsets: GPTQ, AWQ and their like |
| `scaled(block, integers |> cast(i8), scales)` | the same | int8_blocks |
| `scaled(32, pairs |> codes(e2m1), powers |> float8(e8m0))` | 32 | int8_blocks: MXFP4 as gpt-oss has it |

Where the integers of all blocks have the same zero point there are no offsets, but for 4 and 8 bits with an odd one:
what such a format stores as zero is 8, and 0 of -128 … 127.

What has a scale for a row, or for more weights than a format's blocks have, repeats it. Rows chosen, joined or cast do
not change what they are. Permuted inputs and blocks that end within a row do: such weights are floats like all others,
and may be quantised anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from partc.format.gguf import BLOCKS as GGUF_BLOCKS
from partc.ir.encodings.blocks import BLOCK_FORMATS
from partc.ir.graph import Graph, Weight
from partc.ir.weight_formats import INT4, INT8_BLOCKS, WeightFormat
from partc.ir.weights import STORED_STEPS, Join, Leaf, Step, WeightExpr

_BLOCKS = (256, 128, 64, 32, 16)
"""Weights that may share a scale, the most first."""
_PARTED = 32
"""Weights of the smallest block that every engine has products for in every format."""
_FLOATS = frozenset({"f32", "f16", "bf16"})


class Kept(NamedTuple):
    """The format and the block in which blocks of GGUF are kept."""

    format: WeightFormat
    block: int
    """Weights that share a scale."""


KEPT_BLOCKS: Mapping[str, Kept] = {
    "Q4_0": Kept(INT4, 32), "Q4_1": Kept(INT4, 32), "Q4_K": Kept(INT4, 32),
    "TQ1_0": Kept(INT4, 256), "TQ2_0": Kept(INT4, 256),
    "Q5_0": Kept(INT8_BLOCKS, 32), "Q5_1": Kept(INT8_BLOCKS, 32), "Q8_0": Kept(INT8_BLOCKS, 32),
    "Q2_K": Kept(INT8_BLOCKS, 16), "Q3_K": Kept(INT8_BLOCKS, 16), "Q5_K": Kept(INT8_BLOCKS, 32),
    "Q6_K": Kept(INT8_BLOCKS, 16), "IQ4_NL": Kept(INT8_BLOCKS, 32), "IQ4_XS": Kept(INT8_BLOCKS, 32),
    "MXFP4": Kept(INT8_BLOCKS, 32), "NVFP4": Kept(INT8_BLOCKS, 16),
}  # fmt: skip
"""Formats of GGUF's blocks whose integers a format holds."""
_WEIGHTS = {"fields": 1, "words": 8, "e2m1": 2}
"""Weights of an element, in layouts without blocks of GGUF."""
_SIZES = {form.name: (form.bytes, form.weights) for form in GGUF_BLOCKS}


@dataclass(frozen=True)
class StoredIntegers:
    """A matrix [N, K] of integers and their scales, both by rows."""

    format: WeightFormat
    data: WeightExpr
    layout: str
    """Of the data, and of the scales where they lie in it: `partc.ir.encodings.integers`."""
    scales: WeightExpr
    scales_layout: str
    block: int
    offsets: WeightExpr | None = None
    """f32[N, blocks], where zero is not stored as the format does."""

    @property
    def pair(self) -> tuple[WeightExpr, WeightExpr]:
        """The sources of the data and of the scales, in the format's shapes."""
        return (
            Step("integers", (self.format.bits, self.block, self.layout), self.data),
            Step("factors", (self.format.bits, self.block, self.scales_layout), self.scales),
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
    found = None if source is None else _found(source, columns)
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


def _found(source: WeightExpr, columns: int) -> StoredIntegers | None:
    match source:
        case Step(op="decode", arguments=(str(name),), source=rows) if name in KEPT_BLOCKS:
            kept = KEPT_BLOCKS[name]
            arguments = kept.format.bits, kept.block, name
            added = None if BLOCK_FORMATS[name].minima is None else Step("offsets", arguments, rows)
            return StoredIntegers(kept.format, rows, name, rows, name, kept.block, added)
        case Join(
            op="scaled",
            argument=block,
            parts=(
                Step(op="codes", arguments=("e2m1",), source=data),
                Step(op="float8", arguments=("e8m0",), source=scales),
            ),
        ):
            return StoredIntegers(INT8_BLOCKS, data, "e2m1", scales, "e8m0", int(block))
        case Join(op="scaled", argument=block, parts=(data, *each)):
            return _in_blocks(int(block) or columns, columns, data, each)
        case Step(op="cast", arguments=(str(kind),), source=inner) if kind in _FLOATS:
            return _found(inner, columns)
        case Step(op="slice", arguments=(0, *_) as arguments, source=inner):
            found = _found(inner, columns)
            return found and found.by_rows(lambda rows: Step("slice", tuple(arguments), rows))
        case Join(op="concat", argument=0, parts=parts):
            return _joined([_found(part, columns) for part in parts], lambda own: Join("concat", 0, own))
        case Step(op="reshape", arguments=(int(rows), _), source=Join(op="stack", argument=1, parts=parts)):
            every = [_found(part, columns) for part in parts]
            return _joined(every, lambda own: Step("reshape", (rows, -1), Join("stack", 1, own)))
        case _:
            return None


def _in_blocks(
    block: int, columns: int, data: WeightExpr, each: Sequence[WeightExpr]
) -> StoredIntegers | None:
    """Integers with scales and zero points for so many weights.

    Where these are more than a block may have, several blocks share them, small ones: devices that share a matrix can
    part it there.
    """
    kept = next((size for size in _BLOCKS if block % size == 0), None)
    if kept is None or columns % block:
        return None
    if block != kept:
        kept = min(kept, _PARTED)
        each = [Step("repeat", (1, block // kept), numbers) for numbers in each]
    return _with_zeros(kept, data, *each)


def _with_zeros(
    block: int, data: WeightExpr, scales: WeightExpr, zeros: WeightExpr | None = None
) -> StoredIntegers | None:
    """Integers less zero points of their own, or less a number that all of them share.

    Integers v with the zero point z are stored as v + m, of which a format takes its own zero Z: what is left for the
    offset of a block is (Z - m - z) · scale, and nothing where m may be Z - z.
    """
    shared = 0
    if zeros is None and isinstance(data, Step) and data.op == "add":
        shared, data = -cast("int", data.arguments[0]), data.source
    bounds = _bounds(data)
    if bounds is None:
        return None
    is_small = INT4.least <= bounds.least and bounds.most <= INT4.most and block >= _PARTED
    kind = INT4 if is_small else INT8_BLOCKS  # of int4 in blocks of 16 only some engines have products
    zero, moved = kind.zero, kind.zero - shared
    if zeros is not None or bounds.least + moved < kind.least or bounds.most + moved > kind.most:
        moved = min(0, kind.most - bounds.most)
    offsets: WeightExpr | None = None
    if zeros is not None:
        less: WeightExpr = Step("mul", (-1,), zeros)
        offsets = Join("scaled", 1, (Step("add", (zero - moved,), less) if zero - moved else less, scales))
    elif shared != zero - moved:
        offsets = Step("mul", (float(zero - moved - shared),), Step("cast", ("f32",), scales))
    return StoredIntegers(kind, *_laid_out(data, moved, kind), scales, "plain", block, offsets)


class _Bounds(NamedTuple):
    least: int
    most: int


def _bounds(data: WeightExpr) -> _Bounds | None:
    """The bounds of integers [N, K], as a checkpoint has them; None where these are not integers."""
    match data:
        case Step(op="bits", arguments=(int(bits),)):
            return _Bounds(0, 2**bits - 1)
        case Step(op="cast", arguments=("i8",), source=Leaf()):
            return _Bounds(-128, 127)
        case Step(op="cast" | "order" | "transpose" | "slice", source=source):
            return _bounds(source)
        case _:
            return None


def _laid_out(data: WeightExpr, moved: int, kind: WeightFormat) -> tuple[WeightExpr, str]:
    """The integers plus a number, and their layout."""
    is_packed = kind is INT4 and not moved
    match data:
        case Step(op="bits", arguments=(4,), source=words) if is_packed:
            return words, "words"
        case Step(op="cast", source=Step(op="bits", arguments=(4,), source=words)) if is_packed:
            return words, "words"
        case _ if not moved:
            return data, "fields"
        case _:
            return Step("add", (moved,), Step("cast", ("i16",), data)), "fields"


def _joined(
    parts: Sequence[StoredIntegers | None], join: Callable[[tuple[WeightExpr, ...]], WeightExpr]
) -> StoredIntegers | None:
    """Matrices whose rows are joined; each of their tensors is joined as it is stored."""
    known = [part for part in parts if part is not None]
    forms = {
        (part.format, part.layout, part.scales_layout, part.block, _step_of(part.offsets)) for part in known
    }
    if len(known) < len(parts) or len(forms) != 1:
        return None
    offsets = tuple(part.offsets for part in known if part.offsets is not None)
    return replace(
        known[0],
        data=join(tuple(part.data for part in known)),
        scales=join(tuple(part.scales for part in known)),
        offsets=_joined_offsets(offsets, join) if offsets else None,
    )


def _step_of(offsets: WeightExpr | None) -> object:
    """The key under which offsets are alike."""
    return (
        (offsets.op, offsets.arguments)
        if isinstance(offsets, Step) and offsets.op == "offsets"
        else offsets is None
    )


def _joined_offsets(
    parts: tuple[WeightExpr, ...], join: Callable[[tuple[WeightExpr, ...]], WeightExpr]
) -> WeightExpr:
    """Offsets that blocks of GGUF hold are read of what is joined, so that it can be parted as the data can."""
    first = parts[0]
    if isinstance(first, Step) and first.op == "offsets":
        return Step(first.op, first.arguments, join(tuple(cast("Step", part).source for part in parts)))
    return join(parts)


def blocks_together(source: WeightExpr | None) -> int:
    """The number of blocks of a row of data that cannot be parted."""
    if isinstance(source, Step) and source.op in STORED_STEPS:
        return _together(str(source.arguments[2]))[1]
    return 1


def _together(layout: str) -> tuple[int, int]:
    """Bytes that cannot be parted, and how many blocks lie in them; (0, 1) where a row has no blocks of GGUF."""
    if layout not in KEPT_BLOCKS:
        return 0, 1
    size, weights = _SIZES[layout]
    return size, weights // KEPT_BLOCKS[layout].block


def sliced(source: Step, axis: int, first: int, last: int) -> Step:
    """Some rows, or some blocks of every row, of data, scales or offsets."""
    _, block, layout = source.arguments
    size, together = _together(str(layout))
    if axis == 1 and size:
        first, last = first // together * size, last // together * size
    elif axis == 1 and source.op == "integers":
        unit = int(block) // _WEIGHTS[str(layout)]
        first, last = first * unit, last * unit
    return Step(source.op, source.arguments, Step("slice", (axis, first, last), source.source))
