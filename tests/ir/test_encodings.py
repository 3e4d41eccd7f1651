"""Encodings of others, held against torch and against what they say themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partc.ir.encodings.blocks import BLOCK_FORMATS, decode
from partc.ir.encodings.integers import factors, integers
from partc.ir.encodings.mixes import MIXES
from partc.ir.encodings.numbers import bits, codes, float8, order
from partc.ir.weight_formats import INT4


@pytest.mark.parametrize(
    ("form", "dtype"),
    [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2), ("e8m0", torch.float8_e8m0fnu)],
)
def test_floats_of_8_bits_are_those_of_torch(form: str, dtype: torch.dtype) -> None:
    every = np.arange(256, dtype=np.uint8)
    expected = torch.from_numpy(every).view(dtype).float().numpy()
    found = float8(every, form)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), ~numbers)
    assert np.array_equal(found[numbers].view(np.uint32), expected[numbers].view(np.uint32))


@given(st.integers(1, 8), st.lists(st.integers(0, 255), min_size=1, max_size=70))
def test_fields_come_out_of_a_stream_of_bits_as_they_went_in(width: int, values: list[int]) -> None:
    wanted = [value % 2**width for value in values]
    stream = sum(value << (place * width) for place, value in enumerate(wanted))
    words = -(-len(wanted) * width // 32)
    packed = np.frombuffer(stream.to_bytes(words * 4, "little"), "<i4")[None]
    assert bits(packed, width)[0, : len(wanted)].tolist() == wanted


def test_runs_are_put_in_order() -> None:
    assert order(np.arange(8)[None], 3, 2, 1, 0).tolist() == [[3, 2, 1, 0, 7, 6, 5, 4]]


def test_codes_of_a_book_are_halves_of_bytes() -> None:
    packed = np.array([[0x10, 0x7F]], np.uint8)
    assert codes(packed, "e2m1").tolist() == [[0.0, 0.5, -6.0, 6.0]]
    assert codes(packed, "nf4")[0, [0, 3]].tolist() == [np.float32(-0.6961928009986877), 1.0]


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_rows_that_are_no_whole_blocks_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no whole blocks"):
        decode(np.zeros((2, BLOCK_FORMATS[name].bytes + 1), np.uint8), name)


@given(st.integers(0, 2**32 - 1), st.sampled_from([32, 64]))
def test_integers_of_q4_0_are_the_same_matrix_as_int4(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (3, 4, 18), dtype=np.uint8)
    blocks[..., :2] = (rng.random((3, 4)) * 0.1).astype("<f2")[..., None].view(np.uint8)
    rows = blocks.reshape(3, -1)
    kept = INT4.dequantize(integers(rows, 4, 32, "Q4_0"), factors(rows, 4, 32, "Q4_0"))
    assert np.array_equal(kept, decode(rows, "Q4_0"))


@given(st.integers(0, 2**32 - 1), st.sampled_from([16, 32, 64, 128]))
def test_integers_of_words_are_the_same_matrix_as_int4(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    words = rng.integers(-(2**31), 2**31, (5, 256 // 8)).astype(np.int32)
    scales = rng.random((5, 256 // block)).astype(np.float16)
    plain = MIXES["scaled"].make(block, bits(words, 4).astype(np.int16) - 8, scales)
    kept = INT4.dequantize(integers(words, 4, block, "words"), factors(scales, 4, block, "plain"))
    assert np.array_equal(kept, plain)


def test_scales_are_those_of_float16() -> None:
    """Rows that hardly are there have scales near 0; one that is too large is infinite, which nobody takes."""
    scales = np.array([[0.5, 1e-9, 1e6, 0.1]], np.float32)
    expected = np.array([[0.5, 0, np.inf, np.float16(0.1)]], np.float32)
    np.testing.assert_array_equal(factors(scales, 4, 32, "plain"), expected)


def test_an_index_beyond_the_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="index beyond"):
        MIXES["take"].make(1, np.ones((2, 3)), np.array([0, 3]))
