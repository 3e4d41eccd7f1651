"""The formats of quantised weights: how each is stored, and its numbers.

| name | data | scales | a weight is |
| --- | --- | --- | --- |
| int4 | u8[N, ceil(K / block), block / 2] | f32[N, ceil(K / block)] | (value - 8) · scale |
| int8 | i8[N, K] | f32[N] | value · scale |
| int8_blocks | i8[N, ceil(K / block), block] | f32[N, ceil(K / block)] | value · scale |

Scales are rounded to float16, whatever they are stored in: some kernels keep them so, and all devices shall compute
with the same numbers.

Of 4 bits there are two in a byte, the first in its low half. All are symmetric: zero stays zero. The layout of 4 bits
is that of com.microsoft.MatMulNBits of onnxruntime, so that nothing is rearranged for it; the end of a row is filled
up to a whole block with zeros. Of 8 bits in blocks are the integers of 5 to 8 bits, and the codebooks, that checkpoints
of others have: a scale for 16 or 32 weights is what they have been given.

A block's values are those of llama.cpp's Q4_0; its scale is then fitted to them by least squares. Squared error over
squared weights, of all matrices of the storyteller in blocks of 32: 0.0094 where the step is the largest magnitude / 7,
0.0088 where it is / 8, 0.0074 with Q4_0's, 0.0071 fitted; the best of three fitted steps a block would reach 0.0068.
Matrices are taken in pieces, so that beside the result there is never more than `_PIECE` elements.

A format is an entry of `FORMATS` and a keyword of `by_format`, through which every other room learns what differs
between them: with another one mypy names each place. Nodes and weights name theirs by `bits` and `block`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from partc.errors import InternalError

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]
_T = TypeVar("_T")

_PIECE = 1 << 16
"""Elements that are worked on at a time: they fit into a core's own cache."""
_TILE = 256
"""Columns of a transposed matrix that are copied at a time."""


class WeightFormat(ABC):
    """A way to store a matrix [N, K] of floats as data and scales. Times are about 3 ns an element."""

    name: ClassVar[str]
    """As model.yaml has it."""
    bits: ClassVar[int]
    """Of a weight; of two formats that have the same number one has blocks."""
    dtype: ClassVar[str]
    """Short name of the data's element type."""
    least: ClassVar[int]
    """The least of the integers that it holds."""
    most: ClassVar[int]
    """The largest of them."""
    zero: ClassVar[int]
    """The integer that stands for zero."""
    has_blocks: ClassVar[bool]
    """Whether a block of a row has a scale; else a row has."""

    def block(self, asked: int) -> int:
        """Weights of a row that share a scale where model.yaml asks for so many; 0 where all of a row do."""
        return asked if self.has_blocks else 0

    @abstractmethod
    def data_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        """Shape of `quantize` of a matrix [rows, columns]."""

    @abstractmethod
    def scales_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        """Shape of `scales` of a matrix [rows, columns]."""

    @abstractmethod
    def quantize(self, matrix: Array, block: int, *columns: int) -> Array:
        """The data of a matrix.

        Args:
            matrix: [N, K], contiguous or not.
            block: elements of a row that share a scale, a power of two; 0 where a row does.
            columns: without blocks those that are kept of the quantised rows, first and last + 1 of each run; all
                without any.
        """

    @abstractmethod
    def scales(self, matrix: Array, block: int) -> Floats:
        """The scales that go with `quantize(matrix, block)`."""

    def quantize_with_scales(self, matrix: Array, block: int, *columns: int) -> tuple[Array, Floats]:
        """`quantize(matrix, block, *columns)` and `scales(matrix, block)`."""
        return self.quantize(matrix, block, *columns), self.scales(matrix, block)

    @abstractmethod
    def dequantize(self, data: Array, scale: Array) -> Floats:
        """The matrix that data and scales stand for; K is filled up to whole blocks."""


class _Int4(WeightFormat):
    name, bits, dtype, has_blocks = "int4", 4, "u8", True
    least, most, zero = 0, 15, 8

    def data_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        return rows, -(-columns // block), block // 2

    def scales_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        return rows, -(-columns // block)

    def quantize(self, matrix: Array, block: int, *columns: int) -> Array:
        rows, width = matrix.shape
        data = np.empty(self.data_shape(rows, width, block), np.uint8)
        for place, blocks in self._blocks(matrix, block):
            data[place] = _packed(_rounded_blocks(blocks).values).reshape(-1, *data.shape[1:])
        return data

    def scales(self, matrix: Array, block: int) -> Floats:
        rows, width = matrix.shape
        scale = np.empty(self.scales_shape(rows, width, block), np.float32)
        for place, blocks in self._blocks(matrix, block):
            scale[place] = _fitted_scales(_rounded_blocks(blocks)).reshape(-1, scale.shape[1])
        return scale

    def quantize_with_scales(self, matrix: Array, block: int, *columns: int) -> tuple[Array, Floats]:
        rows, width = matrix.shape
        data = np.empty(self.data_shape(rows, width, block), np.uint8)
        scale = np.empty(self.scales_shape(rows, width, block), np.float32)
        for place, blocks in self._blocks(matrix, block):
            found = _rounded_blocks(blocks)
            data[place] = _packed(found.values).reshape(-1, *data.shape[1:])
            scale[place] = _fitted_scales(found).reshape(-1, scale.shape[1])
        return data, scale

    def _blocks(self, matrix: Array, block: int) -> Iterator[tuple[slice, Floats]]:
        """Blocks [n, block] of a few rows at a time."""
        for place, piece in _pieces(matrix, -(-matrix.shape[1] // block) * block):
            yield place, piece.reshape(-1, block)

    def dequantize(self, data: Array, scale: Array) -> Floats:
        packed = data.astype(np.uint8)
        values = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
        whole: Floats = (values.astype(np.float32) - 8) * scale.astype(np.float32)[..., None]
        return whole.reshape(*packed.shape[:-2], -1)


class _Int8(WeightFormat):
    name, bits, dtype, has_blocks = "int8", 8, "i8", False
    least, most, zero = -128, 127, 0

    def data_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        return rows, columns

    def scales_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        return (rows,)

    def quantize(self, matrix: Array, block: int, *columns: int) -> Array:
        return self.quantize_with_scales(matrix, block, *columns)[0]

    def quantize_with_scales(self, matrix: Array, block: int, *columns: int) -> tuple[Array, Floats]:
        rows, width = matrix.shape
        data, scale = np.empty((rows, width), np.int8), np.empty(rows, np.float32)
        for place, piece in _pieces(matrix, width):
            scale[place] = _row_scales(piece)
            steps = np.rint(piece * _inverse(scale[place])[:, None])
            data[place] = np.clip(steps, -127, 127)  # a rounded scale may be too small by half of itself
        runs = [data[:, first:last] for first, last in zip(columns[::2], columns[1::2], strict=True)]
        return np.concatenate(runs, axis=1) if runs else data, scale

    def scales(self, matrix: Array, block: int) -> Floats:
        rows, columns = matrix.shape
        found = np.empty(rows, np.float32)
        for place, piece in _pieces(matrix, columns):
            found[place] = _row_scales(piece)
        return found

    def dequantize(self, data: Array, scale: Array) -> Floats:
        return data.astype(np.float32) * scale.astype(np.float32)[..., None]


class _Int8Blocks(WeightFormat):
    name, bits, dtype, has_blocks = "int8_blocks", 8, "i8", True
    least, most, zero = -128, 127, 0

    def data_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        return rows, -(-columns // block), block

    def scales_shape(self, rows: int, columns: int, block: int) -> tuple[int, ...]:
        return rows, -(-columns // block)

    def quantize(self, matrix: Array, block: int, *columns: int) -> Array:
        return self.quantize_with_scales(matrix, block, *columns)[0]

    def quantize_with_scales(self, matrix: Array, block: int, *columns: int) -> tuple[Array, Floats]:
        rows, width = matrix.shape
        data = np.empty(self.data_shape(rows, width, block), np.int8)
        scale = np.empty(self.scales_shape(rows, width, block), np.float32)
        for place, piece in _pieces(matrix, data.shape[1] * block):
            # As a row of its own every block is one of int8.
            values, found = INT8.quantize_with_scales(piece.reshape(-1, block), 0)
            data[place] = values.reshape(-1, *data.shape[1:])
            scale[place] = found.reshape(-1, scale.shape[1])
        return data, scale

    def scales(self, matrix: Array, block: int) -> Floats:
        return self.quantize_with_scales(matrix, block)[1]

    def dequantize(self, data: Array, scale: Array) -> Floats:
        whole: Floats = data.astype(np.float32) * scale.astype(np.float32)[..., None]
        return whole.reshape(*data.shape[:-2], -1)


INT4, INT8, INT8_BLOCKS = _Int4(), _Int8(), _Int8Blocks()
FORMATS: Mapping[str, WeightFormat] = {each.name: each for each in (INT4, INT8, INT8_BLOCKS)}
"""Every format by its name."""


def by_format(bits: float, block: float, *, int4: _T, int8: _T, int8_blocks: _T) -> _T:
    """What holds for weights of so many bits with so many to a scale, 0 of which are a row.

    Every format has a keyword, and no place has an "else".

    Raises:
        InternalError: there is no such format.
    """
    return {"int4": int4, "int8": int8, "int8_blocks": int8_blocks}[format_of(bits, block).name]


def format_of(bits: float, block: float) -> WeightFormat:
    """The format of weights of so many bits with so many to a scale; raises InternalError where there is none."""
    for each in FORMATS.values():
        if (each.bits, each.has_blocks) == (bits, block > 0):
            return each
    known = ", ".join(f"{each.bits}{' in blocks' * each.has_blocks}" for each in FORMATS.values())
    raise InternalError(
        f"weights have a format of {known} bits, and not of {bits:g} with blocks of {block:g}"
    )


def quantize(matrix: Array, bits: int, block: int, *columns: int) -> Array:
    """The data of a matrix: see `WeightFormat.quantize`."""
    return format_of(bits, block).quantize(matrix, block, *columns)


def scales(matrix: Array, bits: int, block: int) -> Floats:
    """The scales that go with `quantize(matrix, bits, block)`."""
    return format_of(bits, block).scales(matrix, block)


QUANTIZE_STEPS: dict[str, Callable[..., Array]] = {"quantize": quantize, "scales": scales}
"""The two transforms of a weight that together are its quantised form."""


def _pieces(matrix: Array, width: int) -> Iterator[tuple[slice, Floats]]:
    """A few rows at a time as contiguous float32, filled up with zeros to `width` columns."""
    rows, columns = matrix.shape
    step = max(1, _PIECE // max(width, 1))
    for start in range(0, rows, step):
        place = slice(start, min(start + step, rows))
        piece = _float32(_contiguous(matrix[place]))
        yield place, piece if columns == width else np.pad(piece, ((0, 0), (0, width - columns)))


def _contiguous(piece: Array) -> Array:
    """The piece, row after row; one of a transposed matrix is copied in tiles, which is twice as fast."""
    if piece.flags.c_contiguous:
        return piece
    copy = np.empty(piece.shape, piece.dtype)
    for start in range(0, piece.shape[1], _TILE):
        copy[:, start : start + _TILE] = piece[:, start : start + _TILE]
    return copy


def _float32(piece: Array) -> Floats:
    if piece.dtype.name == "bfloat16":  # by name: who reads a quantisation's name needs no ml_dtypes
        # A bfloat16 is the upper half of a float32; this is four times faster than its cast.
        return (piece.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return piece.astype(np.float32, copy=False)


def _row_scales(piece: Floats) -> Floats:
    extremes = np.maximum(piece.max(1, initial=0), -piece.min(1, initial=0))
    return _rounded(extremes / np.float32(127))


def _rounded(found: Floats) -> Floats:
    """The scales as float16 has them; infinite where it has none so large."""
    result: Floats = found.astype(np.float16).astype(np.float32)
    return result


def _steps(across: Floats) -> Floats:
    """The step from one value of a block to the next, blocks in columns [block, n].

    The element of largest magnitude becomes -8, as in llama.cpp's Q4_0: the value that has no opposite is used.
    """
    high, low = across.max(0), across.min(0)
    result: Floats = np.where(high > -low, high, low) / np.float32(-8)
    return result


class _Rounded(NamedTuple):
    """Blocks as whole numbers of steps; all with blocks in columns."""

    in_steps: Floats
    """The elements, in steps [block, n]: none is larger than 8."""
    values: Floats
    """The number that is stored of each, 0 … 15 [block, n]."""
    steps: Floats
    """The step of each block [n]."""


def _rounded_blocks(blocks: Floats) -> _Rounded:
    """Blocks [n, block] as whole numbers."""
    across = _across(blocks)
    steps = _steps(across)
    across *= _inverse(steps)
    values = across + np.float32(8.5)
    np.minimum(values, np.float32(15), out=values)
    return _Rounded(across, np.floor(values, out=values), steps)


def _packed(values: Floats) -> Array:
    """Values [block, n] as [n, block / 2] bytes; neighbours share one."""
    stored = values.astype(np.uint8)
    pairs = stored[1::2] << 4
    pairs |= stored[::2]
    return pairs.T


def _fitted_scales(found: _Rounded) -> Floats:
    """The scale with the least squared error for the values that are stored: Σ v·x / Σ v²; takes `found` apart."""
    products, squares, steps = found
    squares -= np.float32(8)
    products *= squares  # in steps no sum overflows
    squares *= squares
    return _rounded(steps * (_sums(products) * _inverse(_sums(squares))))


def _sums(across: Floats) -> Floats:
    """Sums of the columns, 2ⁿ elements each, by halves in place.

    numpy's own order depends on how many columns there are, and so would the bytes of equal weights in other pieces.
    """
    half = len(across) // 2
    while half:
        across[:half] += across[half : 2 * half]
        half //= 2
    result: Floats = across[0]
    return result


def _across(blocks: Floats) -> Floats:
    """A copy with blocks in columns: numpy then works on whole vectors, not on one block after the other."""
    return np.array(blocks.T, order="C")


def _inverse(scale: Floats) -> Floats:
    """1 / scale; 0 where that is no number."""
    usable = np.abs(scale) >= np.finfo(np.float32).tiny
    result: Floats = np.divide(1, scale, out=np.zeros_like(scale), where=usable)
    return result
