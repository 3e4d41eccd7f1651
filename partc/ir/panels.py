"""Panels: quantised matrices in the order in which kernels read them, one stream from the first byte to the last.

A panel holds 16 rows of a matrix [N, K], which are 16 outputs of a product: one lane of a vector each. A word is 4
neighbouring weights of one row.

| bits | panels | a row of 16 words is |
| --- | --- | --- |
| 4 | i32[ceil(N / 64), ceil(K / 64), 4, 144] | 8 weights of 16 rows: k = 8i … 8i + 3 in the low halves of the bytes |
| 8 | i32[ceil(N / 16), 2 + 8 ceil(K / 32), 16] | 4 weights of 16 rows, k = 4i … 4i + 3 |
| 8, in blocks | i32[ceil(N / 16), ceil(K / 32), 136] | the same |

Of 4 bits, 144 words are two blocks of 32 weights of one panel, 4 rows each, and then their 2 · 16 scales in float16;
larger blocks repeat their scale: 0.5625 bytes a weight where blocks of 64 could do with 0.531 and of 128 with 0.516.
Four panels side by side make steps of 2304 bytes. Values are 0 … 15, and 8 stands for zero.

Of 8 bits, the first row is -128 Σ w of each matrix row (where a product starts whose activations are stored + 128), the
second its scale in float32. K is filled up to whole blocks first. What fills up N and K has the scale 0, or weights
of 0.

In blocks of 32 or more, 136 words are 32 weights of 16 rows and then their 16 scales in float16; blocks of 16 have two
scales for these, 144 words. 1.0625 bytes a weight, and 1.125.

The layout is the same for every processor; that of 4 bits was measured against others on AVX-512: panels that lie
apart, or scales in a tensor of their own, cost a fifth to a third of the speed of a product with one row.
"""

from __future__ import annotations

import numpy as np

from partc.format.dtypes import Array
from partc.ir.weight_formats import INT4, INT8, by_format, format_of

LANES = 16
"""Rows of the matrix in a panel."""
BLOCK = 32
"""Weights that have a scale in the stream, at most, where there are blocks."""
_WORDS = BLOCK // 4 * LANES
"""Words of such weights of 8 bits in a panel."""
_ROWS_OF_GROUP = {INT4.bits: 4 * LANES, INT8.bits: LANES}
"""Bits of a weight → rows of the matrix that make one row of `panels`, with blocks or without."""


def panels(matrix: Array, bits: int, block: int, *columns: int) -> Array:
    """The panels of a matrix [N, K] of floats, quantised as `quantize` and `scales` do; about 4 ns an element.

    Args:
        matrix: [N, K], contiguous or not.
        bits: 4 or 8.
        block: elements of a row that share a scale, a multiple of 32, or 16 with 8 bits; 0 where a row does.
        columns: as for `quantize`.
    """
    return panels_of(*format_of(bits, block).quantize_with_scales(matrix, block, *columns), bits)


def panels_of(data: Array, scale: Array, bits: int) -> Array:
    """The panels of data and scales, whose shapes are those of `quantize` and `scales` of a matrix."""
    blocks = scale.shape[1] if scale.ndim > 1 else 0  # as many as there are, or none
    return by_format(bits, blocks, int4=_panels4, int8=_panels8, int8_blocks=_panels8_blocks)(data, scale)


def panels_shape(rows: int, columns: int, bits: int, block: int) -> tuple[int, ...]:
    """Shape of `panels` of a matrix [rows, columns]; with blocks `columns` are those of whole ones."""
    groups, blocks = -(-rows // rows_of_group(bits)), -(-columns // BLOCK)
    shape = by_format(
        bits,
        block,
        int4=(-(-blocks // 2), 4, 144),
        int8=(2 + 8 * blocks, LANES),
        int8_blocks=(blocks, _WORDS + scales_of_block(block) * LANES // 2),
    )
    return (groups, *shape)


def rows_of_group(bits: int) -> int:
    """Rows of the matrix that make one row of `panels`."""
    return _ROWS_OF_GROUP[bits]


def scales_of_block(block: int) -> int:
    """Scales that 32 weights of a row have in panels of 8 bits in blocks."""
    return BLOCK // min(max(block, 1), BLOCK)


def scales_of(stream: Array) -> Array:
    """The scales in panels, in the order of memory."""
    if stream.shape[-1] == LANES:
        return stream[..., 1, :].view("<f4")
    return np.ascontiguousarray(stream[..., _WORDS:]).view("<f2")


def _panels4(data: Array, scale: Array) -> Array:
    """Data u8[N, blocks, block / 2] and scales [N, blocks]."""
    rows, many, half = data.shape
    words = _words4(data.reshape(rows, -1, BLOCK // 2))
    halves = np.repeat(scale.astype("<f2"), 2 * half // BLOCK, axis=1)
    blocks = words.shape[1]
    groups, steps, *_ = panels_shape(rows, many * 2 * half, 4, 2 * half)
    missing = (0, groups * rows_of_group(4) - rows), (0, steps * 2 - blocks)
    words, halves = np.pad(words, (*missing, (0, 0))), np.pad(halves, missing)
    weights = words.reshape(groups, 4, LANES, steps, 2, 4).transpose(0, 3, 1, 4, 5, 2)
    factors = halves.reshape(groups, 4, LANES, steps, 2).transpose(0, 3, 1, 4, 2)
    stream = np.empty((groups, steps, 4, 144), "<i4")
    stream[..., :128] = weights.reshape(groups, steps, 4, 128)
    stream[..., 128:] = np.ascontiguousarray(factors).view("<i4").reshape(groups, steps, 4, LANES)
    return stream


def _words4(pairs: Array) -> Array:
    """Pairs u8[N, blocks, 16], k even in the low half, as i32[N, blocks, 4]: k and k + 4 share a byte."""
    words = np.ascontiguousarray(pairs).view("<u4")  # weights 0 1 2 3 4 5 6 7, from the lowest bits
    words = _swapped(words, 0x0000FF00, 8)  # 0 1 4 5 2 3 6 7
    words = _swapped(words, 0x00F000F0, 4)  # 0 4 1 5 2 6 3 7
    return words.view("<i4")


def _swapped(words: Array, mask: int, distance: int) -> Array:
    """Numbers in which the bits of a mask have changed places with those so far above them."""
    differ = words >> np.uint32(distance)
    differ ^= words
    differ &= np.uint32(mask)
    both = differ << np.uint32(distance)
    both ^= differ
    both ^= words
    return both


def _panels8(data: Array, scale: Array) -> Array:
    """Data i8[N, K] and scales [N]."""
    rows, columns = data.shape
    groups, height, _ = panels_shape(rows, columns, 8, 0)
    padded = np.zeros((groups * LANES, (height - 2) * 4), np.int8)
    padded[:rows, :columns] = data
    stream = np.zeros((groups, height, LANES), "<i4")
    stream[:, 0] = -128 * padded.sum(1, dtype=np.int32).reshape(groups, LANES)
    factors = np.pad(scale.astype("<f4"), (0, groups * LANES - rows))
    stream[:, 1] = factors.view("<i4").reshape(groups, LANES)
    stream[:, 2:] = padded.view("<i4").reshape(groups, LANES, -1).transpose(0, 2, 1)
    return stream


def _panels8_blocks(data: Array, scale: Array) -> Array:
    """Data i8[N, blocks, block] and scales [N, blocks]."""
    rows, many, block = data.shape
    groups, blocks, words = panels_shape(rows, many * block, 8, block)
    each = scales_of_block(block)
    padded = np.zeros((groups * LANES, blocks * BLOCK), np.int8)
    padded[:rows, : many * block] = data.reshape(rows, -1)
    factors = np.zeros((groups * LANES, blocks * each), "<f2")
    factors[:rows, : many * max(1, block // BLOCK)] = np.repeat(scale, max(1, block // BLOCK), axis=1)
    stream = np.empty((groups, blocks, words), "<i4")
    weights = padded.view("<i4").reshape(groups, LANES, blocks, BLOCK // 4)
    stream[..., :_WORDS] = weights.transpose(0, 2, 3, 1).reshape(groups, blocks, _WORDS)
    lanes = factors.reshape(groups, LANES, blocks, each).transpose(0, 2, 3, 1)
    stream[..., _WORDS:] = np.ascontiguousarray(lanes).view("<i4").reshape(groups, blocks, -1)
    return stream
