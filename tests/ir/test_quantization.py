"""Quantised weights against a plain reference, element by element, and against onnxruntime's own layout."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.errors import InternalError
from partc.ir.operators import QUANTIZED_MATMUL
from partc.ir.operators.quantized import FORMS
from partc.ir.panels import panels
from partc.ir.weight_formats import FORMATS, INT4, INT8, INT8_BLOCKS, by_format, format_of, quantize, scales

Floats = npt.NDArray[np.float32]


@st.composite
def matrices(draw: st.DrawFn) -> Floats:
    """Matrices of awkward sizes, with rows of zeros and rows of very different magnitudes."""
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    magnitudes = rng.choice([0, 1e-3, 1, 300], (rows, 1))
    whole: Floats = (rng.standard_normal((rows, columns)) * magnitudes).astype(np.float32)
    return whole


def block_of(row: Floats, block: int) -> tuple[list[int], float]:
    """Values 0-15 and scale of one block, the plain way."""
    extreme = max(row, key=lambda x: (abs(x), x))
    step = float(extreme) / -8
    values = [min(15, int(float(x) / step + 8.5)) if step else 8 for x in row]
    values += [8] * (block - len(row))
    squares = sum((v - 8) ** 2 for v in values)
    fitted = sum((v - 8) * float(x) for v, x in zip(values, row, strict=False)) / squares if squares else 0.0
    return values, fitted


@settings(max_examples=60, deadline=None)
@given(matrices(), st.sampled_from([16, 32, 64]))
def test_four_bits_are_what_the_plain_rule_says(matrix: Floats, block: int) -> None:
    (rows, columns), data, scale = matrix.shape, quantize(matrix, 4, block), scales(matrix, 4, block)
    assert data.shape == INT4.data_shape(rows, columns, block)
    assert scale.shape == INT4.scales_shape(rows, columns, block)
    for row in range(len(matrix)):
        for index in range(scale.shape[1]):
            values, fitted = block_of(matrix[row, index * block : (index + 1) * block], block)
            packed = data[row, index].astype(int)
            stored = np.stack([packed & 15, packed >> 4], 1).reshape(-1)
            # Float32 may round an element that lies in the middle of two values the other way.
            assert np.abs(stored - values).max() <= 1
            assert (stored != values).sum() <= 1
            assert scale[row, index] == pytest.approx(fitted, rel=0.02, abs=1e-30)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.sampled_from([16, 32]))
def test_four_bits_are_off_by_a_step_at_most(matrix: Floats, block: int) -> None:
    whole = INT4.dequantize(quantize(matrix, 4, block), scales(matrix, 4, block))
    assert not whole[:, matrix.shape[1] :].any()
    padded = np.pad(matrix, ((0, 0), (0, whole.shape[1] - matrix.shape[1])))
    largest = np.abs(padded).reshape(len(matrix), -1, block).max(-1).repeat(block, 1)
    assert (np.abs(whole - padded) <= largest / 7 + 1e-30).all()


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_eight_bits_are_off_by_half_a_step_at_most(matrix: Floats) -> None:
    data, scale = quantize(matrix, 8, 0), scales(matrix, 8, 0)
    assert (data.dtype, data.shape, scale.shape) == (np.dtype(np.int8), matrix.shape, (len(matrix),))
    np.testing.assert_array_equal(scale, (np.abs(matrix).max(1) / 127).astype(np.float16))
    # Below its normal numbers float16 has steps of 2⁻²⁴: a scale may be half of one too small, at 127 values.
    rounded = np.where(scale < np.finfo(np.float16).tiny, 127 * 2.0**-25, 0)
    assert (np.abs(INT8.dequantize(data, scale) - matrix) <= (scale * 0.501 + rounded)[:, None]).all()


@settings(max_examples=40, deadline=None)
@given(matrices(), st.sampled_from([16, 32]))
def test_blocks_of_eight_bits_are_rows_of_their_own(matrix: Floats, block: int) -> None:
    data, scale = quantize(matrix, 8, block), scales(matrix, 8, block)
    padded = np.pad(matrix, ((0, 0), (0, data.shape[1] * block - matrix.shape[1])))
    rows = padded.reshape(-1, block)
    np.testing.assert_array_equal(data.reshape(-1, block), quantize(rows, 8, 0))
    np.testing.assert_array_equal(scale.reshape(-1), scales(rows, 8, 0))
    whole = INT8_BLOCKS.dequantize(data, scale)
    np.testing.assert_array_equal(
        whole.reshape(-1, block), INT8.dequantize(quantize(rows, 8, 0), scales(rows, 8, 0))
    )


def test_the_scale_is_the_one_with_the_least_error(rng: np.random.Generator) -> None:
    matrix = rng.standard_normal((64, 256)).astype(np.float32)
    data, scale = quantize(matrix, 4, 32), scales(matrix, 4, 32)

    def error(factor: float) -> float:
        return float(((INT4.dequantize(data, scale * np.float32(factor)) - matrix) ** 2).sum())

    assert error(1) < min(error(0.99), error(1.01))


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 0), (8, 32)])
def test_any_layout_and_any_piece_gives_the_same_bytes(
    rng: np.random.Generator, bits: int, block: int
) -> None:
    matrix = rng.standard_normal((700, 130)).astype(np.float32)
    turned = np.asfortranarray(matrix)
    assert not turned.flags.c_contiguous
    for function in (quantize, scales):
        whole = function(matrix, bits, block)
        assert whole.tobytes() == function(turned, bits, block).tobytes()
        parts = [function(matrix[start : start + 33], bits, block) for start in range(0, 700, 33)]
        assert whole.tobytes() == np.concatenate(parts).tobytes()
        assert whole.tobytes() != function(matrix[::-1], bits, block).tobytes()
    both = format_of(bits, block).quantize_with_scales(turned, block)
    assert [found.tobytes() for found in both] == [
        function(matrix, bits, block).tobytes() for function in (quantize, scales)
    ]
    assert turned.tobytes() == np.asfortranarray(matrix).tobytes()


def test_a_block_alone_has_the_scale_that_it_has_among_others(rng: np.random.Generator) -> None:
    """Numpy sums one column in another order than several: bytes would depend on where a piece ends."""
    matrix = rng.standard_normal((200, 32)).astype(np.float32)
    alone = np.concatenate([scales(row[None], 4, 32) for row in matrix])
    assert alone.tobytes() == scales(matrix, 4, 32).tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize(("bits", "block"), [(4, 16), (8, 0), (8, 16)])
def test_half_precision_is_quantised_as_its_values(
    rng: np.random.Generator, dtype: npt.DTypeLike, bits: int, block: int
) -> None:
    half = rng.standard_normal((5, 48)).astype(dtype)
    for function in (quantize, scales):
        np.testing.assert_array_equal(
            function(half, bits, block), function(half.astype(np.float32), bits, block)
        )


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 0), (8, 32)])
def test_tiny_and_empty_rows_stay_finite(bits: int, block: int) -> None:
    matrix = np.zeros((4, 32), np.float32)
    matrix[1, 3] = 1e-45
    matrix[2, 0] = 5e5
    matrix[3] = np.finfo(np.float32).tiny
    scale = scales(matrix, bits, block)
    assert np.isfinite(scale).all()
    whole = format_of(bits, block).dequantize(quantize(matrix, bits, block), scale)
    np.testing.assert_array_equal(whole[0], 0)
    np.testing.assert_allclose(whole[2], matrix[2], rtol=1e-3)
    assert quantize(np.empty((0, 32), np.float32), bits, block).shape == format_of(bits, block).data_shape(
        0, 32, block
    )


@pytest.mark.ort
@pytest.mark.parametrize("block", [16, 32, 128])
def test_the_layout_is_that_of_onnxruntime(rng: np.random.Generator, block: int) -> None:
    from onnxruntime.capi import _pybind_state as state

    helper: Callable[..., None] = state.quantize_matmul_4bits
    rows, columns = 24, 3 * block - block // 2
    matrix = rng.standard_normal((rows, columns)).astype(np.float32)
    blocks = -(-columns // block)
    data = np.zeros((rows, blocks, block // 2), np.uint8)
    scale = np.zeros(rows * blocks, np.float32)
    zeros = np.zeros(rows * ((blocks + 1) // 2), np.uint8)
    helper(data, np.ascontiguousarray(matrix.T), scale, zeros, block, rows, columns, True)
    ours, theirs = (_values(packed)[:, :columns] for packed in (quantize(matrix, 4, block), data))
    # Equal but for elements in the middle of two values; the steps are those before ours are fitted.
    assert (np.abs(ours - theirs) <= 1).all()
    assert (ours != theirs).mean() < 0.002
    assert np.abs(scales(matrix, 4, block).reshape(-1) / scale - 1).max() < 0.1


def _values(packed: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    wide = packed.astype(np.int64)
    return np.stack([wide & 15, wide >> 4], -1).reshape(len(packed), -1)


def test_what_differs_between_formats_is_asked_of_all() -> None:
    """A format without a keyword in `by_format` would be none; one that is added is missing at every call."""
    assert {*signature(by_format).parameters} - {"bits", "block"} == {*FORMATS}
    names = {"int4": "int4", "int8": "int8", "int8_blocks": "int8_blocks"}
    found = [by_format(each.bits, each.block(32), **names) for each in FORMATS.values()]
    assert found == [*FORMATS]
    chosen = [
        QUANTIZED_MATMUL.signature({"bits": each.bits, "block": each.block(32)}) for each in FORMATS.values()
    ]
    assert [signature.operands[1:3] for signature in chosen] == [form.operands for form in FORMS]


@pytest.mark.parametrize("act", [
    lambda: quantize(np.ones((2, 32), np.float32), 3, 32), lambda: scales(np.ones((2, 32), np.float32), 3, 32),
    lambda: by_format(3, 32, int4=0, int8=0, int8_blocks=0), lambda: format_of(4, 0),
    lambda: panels(np.ones((2, 32), np.float32), 3, 32),
])  # fmt: skip
def test_no_other_format_is_taken_for_one_of_these(act: Callable[[], object]) -> None:
    with pytest.raises(InternalError, match=r"and not of [34]"):
        act()
