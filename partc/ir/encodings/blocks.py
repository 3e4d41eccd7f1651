"""Blocks of GGUF files as float32, bit for bit as llama.cpp and its Python package `gguf` have them.

| name | weights: bytes | a weight is |
| --- | --- | --- |
| Q4_0, Q5_0, Q8_0 | 32: 18, 22, 34 | d · (q - 8), d · (q - 16), d · q |
| Q4_1, Q5_1 | 32: 20, 24 | d · q + m |
| Q2_K | 256: 84 | (d · s) · q - dmin · m, s and m of 4 bits for 16 weights |
| Q3_K | 256: 110 | (d · (s - 32)) · (q - 4), s of 6 bits for 16 weights |
| Q4_K, Q5_K | 256: 144, 176 | (d · s) · q - dmin · m, s and m of 6 bits for 32 weights |
| Q6_K | 256: 210 | (d · s) · (q - 32), s of 8 bits with a sign for 16 weights |
| IQ4_NL | 32: 18 | d · table[q] |
| IQ4_XS | 256: 136 | (d · (s - 32)) · table[q], s of 6 bits for 32 weights |
| MXFP4 | 32: 17 | 2^(e - 128) · table[q], the table twice the numbers of E2M1 |
| NVFP4 | 64: 36 | s · table[q], s half of an E4M3 without a sign for 16 weights |
| TQ1_0, TQ2_0 | 256: 54, 66 | d · (t - 1) |

d, dmin and m are float16. In float32 the products of scales are exact, so that only the last product of Q4_K and its
like, and the difference, can round. Layouts: ggml-common.h and `gguf/quants.py` of llama.cpp, read for facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partc.format.gguf import BLOCKS, Blocks
from partc.ir.encodings.numbers import E2M1_DOUBLED, exponents

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
_Small = npt.NDArray[np.int16]

_AT_ONCE = 1 << 16
"""Weights that are worked on at a time: they fit into a core's own cache."""
_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16)
"""The codebook of IQ4_NL and IQ4_XS."""


@dataclass(frozen=True)
class BlockFormat(Blocks):
    """A format of blocks, and how it is read."""

    read: Callable[[Bytes], Floats]
    """Blocks [n, bytes] → weights [n, weights]."""


def decode(stored: npt.NDArray[np.generic], name: str) -> Floats:
    """The weights of rows of blocks: u8[…, n · bytes] → f32[…, n · weights]; 5 to 10 ns a weight.

    Raises:
        ValueError: a row is no whole number of blocks.
    """
    form = BLOCK_FORMATS[name]
    *outer, width = stored.shape
    if width % form.bytes:
        raise ValueError(f"rows of {width} bytes are no whole blocks of {name}, which have {form.bytes}")
    blocks = np.ascontiguousarray(stored).view(np.uint8).reshape(-1, form.bytes)
    found = np.empty((len(blocks), form.weights), np.float32)
    step = max(1, _AT_ONCE // form.weights)
    for start in range(0, len(blocks), step):
        found[start : start + step] = form.read(blocks[start : start + step])
    return found.reshape(*outer, width // form.bytes * form.weights)


def _half(part: Bytes) -> Floats:
    """Bytes [n, 2 k] as k numbers of float16 each."""
    return np.ascontiguousarray(part).view("<f2").astype(np.float32)


def _fields(part: Bytes, width: int, run: int) -> _Small:
    """Fields of `width` bits, of every `run` bytes first the lowest of each byte, then the next ones."""
    runs = part.reshape(len(part), -1, 1, run)
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    return ((runs >> shifts) & np.uint8((1 << width) - 1)).reshape(len(part), -1).astype(np.int16)


def _bit_of_each(part: Bytes) -> _Small:
    """Bit i belongs to weight i."""
    return np.unpackbits(np.ascontiguousarray(part), axis=1, bitorder="little").astype(np.int16)


def _scaled(values: _Small, scale: Floats) -> Floats:
    """Values [n, k] times a scale for each of equal groups of them, [n, groups]."""
    grouped = values.reshape(*scale.shape, -1).astype(np.float32)
    grouped *= scale[..., None]
    return grouped.reshape(values.shape)


def _less(products: Floats, minimum: Floats) -> Floats:
    """Products [n, k] less a minimum for each of equal groups of them."""
    grouped = products.reshape(*minimum.shape, -1)
    grouped -= minimum[..., None]
    return products


def _q4_0(b: Bytes) -> Floats:
    return _scaled(_fields(b[:, 2:], 4, 16) - 8, _half(b[:, :2]))


def _q4_1(b: Bytes) -> Floats:
    return _less(_scaled(_fields(b[:, 4:], 4, 16), _half(b[:, :2])), -_half(b[:, 2:4]))


def _q5_0(b: Bytes) -> Floats:
    return _scaled((_fields(b[:, 6:], 4, 16) | _bit_of_each(b[:, 2:6]) << 4) - 16, _half(b[:, :2]))


def _q5_1(b: Bytes) -> Floats:
    values = _fields(b[:, 8:], 4, 16) | _bit_of_each(b[:, 4:8]) << 4
    return _less(_scaled(values, _half(b[:, :2])), -_half(b[:, 2:4]))


def _q8_0(b: Bytes) -> Floats:
    return _scaled(np.ascontiguousarray(b[:, 2:]).view(np.int8).astype(np.int16), _half(b[:, :2]))


def _q2_k(b: Bytes) -> Floats:
    scale, least = _half(b[:, 80:82]), _half(b[:, 82:84])
    low, high = (part.astype(np.float32) for part in (b[:, :16] & 15, b[:, :16] >> 4))
    return _less(_scaled(_fields(b[:, 16:80], 2, 32), scale * low), least * high)


def _q3_k(b: Bytes) -> Floats:
    values = _fields(b[:, 32:96], 2, 32) - 4 * (1 - _fields(b[:, :32], 1, 32))
    six = _fields(b[:, 96:104], 4, 8) | _fields(b[:, 104:108], 2, 4) << 4
    return _scaled(values, _half(b[:, 108:110]) * (six - 32).astype(np.float32))


def scales_and_minima(b: Bytes) -> tuple[Floats, Floats]:
    """8 scales and 8 minima of 6 bits in 12 bytes: of the last four the upper two bits lie above the first four."""
    first, second, rest = b[:, :4], b[:, 4:8], b[:, 8:12]
    scale = np.concatenate([first & 63, (rest & 15) | (first >> 6) << 4], axis=1)
    least = np.concatenate([second & 63, (rest >> 4) | (second >> 6) << 4], axis=1)
    return scale.astype(np.float32), least.astype(np.float32)


def _q4_k(b: Bytes) -> Floats:
    scale, least = scales_and_minima(b[:, 4:16])
    products = _scaled(_fields(b[:, 16:], 4, 32), _half(b[:, :2]) * scale)
    return _less(products, _half(b[:, 2:4]) * least)


def _q5_k(b: Bytes) -> Floats:
    scale, least = scales_and_minima(b[:, 4:16])
    values = _fields(b[:, 48:], 4, 32) | _fields(b[:, 16:48], 1, 32) << 4
    return _less(_scaled(values, _half(b[:, :2]) * scale), _half(b[:, 2:4]) * least)


def _q6_k(b: Bytes) -> Floats:
    values = (_fields(b[:, :128], 4, 64) | _fields(b[:, 128:192], 2, 32) << 4) - 32
    scale = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)
    return _scaled(values, _half(b[:, 208:]) * scale)


def _iq4_nl(b: Bytes) -> Floats:
    return _scaled(_IQ4[_fields(b[:, 2:], 4, 16)], _half(b[:, :2]))


def _iq4_xs(b: Bytes) -> Floats:
    six = _fields(b[:, 4:8], 4, 1) | _fields(b[:, 2:4], 2, 1) << 4
    scale = _half(b[:, :2]) * (six - 32).astype(np.float32)
    return _scaled(_IQ4[_fields(b[:, 8:], 4, 16)], scale)


def _mxfp4(b: Bytes) -> Floats:
    return _scaled(E2M1_DOUBLED[_fields(b[:, 1:], 4, 16)], exponents(b[:, :1], 128))


def _nvfp4(b: Bytes) -> Floats:
    power, fraction = (b[:, :4] >> 3 & 15).astype(np.int32), (b[:, :4] & 7).astype(np.float32)
    normal, small = np.ldexp(8 + fraction, power - 11), np.ldexp(fraction, -10)
    scale = np.where(power > 0, normal, small).astype(np.float32)
    # ggml reads the code for "no number" as 0.
    return _scaled(E2M1_DOUBLED[_fields(b[:, 4:], 4, 8)], np.where(b[:, :4] == 127, np.float32(0), scale))


def _tq1_0(b: Bytes) -> Floats:
    def digits(part: Bytes, many: int, run: int) -> _Small:
        """Digits of base 3, the first of each byte first; a byte is a fraction of 256."""
        powers = np.array([1, 3, 9, 27, 81][:many], np.uint8)[:, None]
        moved = part.reshape(len(part), -1, 1, run) * powers
        return (moved.astype(np.uint16) * 3 >> 8).reshape(len(part), -1).astype(np.int16)

    parts = digits(b[:, :32], 5, 32), digits(b[:, 32:48], 5, 16), digits(b[:, 48:52], 4, 4)
    return _scaled(np.concatenate(parts, axis=1) - 1, _half(b[:, 52:]))


def _tq2_0(b: Bytes) -> Floats:
    return _scaled(_fields(b[:, :64], 2, 32) - 1, _half(b[:, 64:]))


_READERS: Mapping[str, Callable[[Bytes], Floats]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q2_K": _q2_k, "Q3_K": _q3_k,
    "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0, "MXFP4": _mxfp4, "NVFP4": _nvfp4,
}  # fmt: skip
BLOCK_FORMATS: Mapping[str, BlockFormat] = {
    form.name: BlockFormat(form.name, form.number, form.weights, form.bytes, _READERS[form.name])
    for form in BLOCKS
}
"""Every format of blocks that is read, by name."""
