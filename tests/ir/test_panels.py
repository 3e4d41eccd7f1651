"""Panels against the plain meaning of their layout: every weight and every scale at its place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.ir.panels import BLOCK, LANES, panels, panels_of, panels_shape, rows_of_group, scales_of
from partc.ir.weight_formats import by_format, format_of, quantize, scales

Floats = npt.NDArray[np.float32]
FORMATS = [(4, 32), (4, 64), (4, 128), (4, 256), (8, 0), (8, 16), (8, 32), (8, 256)]


@st.composite
def matrices(draw: st.DrawFn) -> Floats:
    rows, columns = draw(st.integers(1, 140)), draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found: Floats = rng.standard_normal((rows, columns), dtype=np.float32)
    return found


def weights4(stream: npt.NDArray[np.int32]) -> Floats:
    """The matrix in panels of 4 bits, filled up as they are; one word and one byte after the other."""
    groups, steps, _, _ = stream.shape
    found = np.empty((groups * 64, steps * 64), np.float32)
    for group, step, panel, half in np.ndindex(groups, steps, 4, 2):
        rows = slice(group * 64 + panel * LANES, group * 64 + (panel + 1) * LANES)
        unit = stream[group, step, panel]
        scale = unit[128:].view(np.float16)[half * LANES : (half + 1) * LANES].astype(np.float32)
        for word, byte in np.ndindex(4, 4):
            bytes_ = unit[half * 64 + word * LANES : half * 64 + (word + 1) * LANES].view(np.uint8)[byte::4]
            k = step * 64 + half * BLOCK + word * 8 + byte
            found[rows, k] = ((bytes_ & 15).astype(np.float32) - 8) * scale
            found[rows, k + 4] = ((bytes_ >> 4).astype(np.float32) - 8) * scale
    return found


def weights8(stream: npt.NDArray[np.int32]) -> Floats:
    """The matrix in panels of 8 bits, filled up as they are."""
    groups = len(stream)
    data = np.ascontiguousarray(stream[:, 2:].transpose(0, 2, 1)).view(np.int8).reshape(groups * LANES, -1)
    np.testing.assert_array_equal(stream[:, 0].reshape(-1), -128 * data.sum(1, dtype=np.int32))
    scale = np.ascontiguousarray(stream[:, 1]).view(np.float32).reshape(-1, 1)
    return data.astype(np.float32) * scale


def weights8_blocks(stream: npt.NDArray[np.int32]) -> Floats:
    """The matrix in panels of 8 bits in blocks, filled up as they are; one word and one byte after the other."""
    groups, blocks, words = stream.shape
    each = (words - 128) // 8
    found = np.empty((groups * LANES, blocks * BLOCK), np.float32)
    for group, block, word, byte in np.ndindex(groups, blocks, 8, 4):
        rows, unit = slice(group * LANES, (group + 1) * LANES), stream[group, block]
        scale = unit[128:].view(np.float16).reshape(each, LANES)[word * each // 8].astype(np.float32)
        bytes_ = unit[word * LANES : (word + 1) * LANES].view(np.int8)[byte::4]
        found[rows, block * BLOCK + word * 4 + byte] = bytes_.astype(np.float32) * scale
    return found


def unpacked(stream: npt.NDArray[np.int32], bits: int, block: int) -> Floats:
    return by_format(bits, block, int4=weights4, int8=weights8, int8_blocks=weights8_blocks)(stream)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.sampled_from(FORMATS))
def test_panels_hold_the_quantised_matrix_and_zeros_behind_it(matrix: Floats, how: tuple[int, int]) -> None:
    (rows, columns), (bits, block) = matrix.shape, how
    stream: npt.NDArray[np.int32] = panels(matrix, bits, block)
    filled = -(-columns // block) * block if block else columns
    assert (stream.dtype, stream.shape) == (np.dtype(np.int32), panels_shape(rows, filled, bits, block))
    found, form = unpacked(stream, bits, block), format_of(bits, block)
    expected = form.dequantize(quantize(matrix, bits, block), scales(matrix, bits, block))[:, :columns]
    np.testing.assert_array_equal(found[:rows, :columns], expected)
    found[:rows, :columns] = 0
    assert not found.any()


@pytest.mark.parametrize("how", FORMATS)
def test_groups_of_rows_are_packed_alone_as_they_are_together(how: tuple[int, int]) -> None:
    matrix = np.random.default_rng(1).standard_normal((150, 70), dtype=np.float32)
    step = rows_of_group(how[0])
    parts = [panels(matrix[start : start + step], *how) for start in range(0, 150, step)]
    assert np.concatenate(parts).tobytes() == panels(matrix, *how).tobytes()


@pytest.mark.parametrize("how", FORMATS)
def test_all_scales_are_found(how: tuple[int, int]) -> None:
    matrix = np.random.default_rng(1).standard_normal((64, 256), dtype=np.float32)
    expected = np.unique(scales(matrix, *how))
    np.testing.assert_array_equal(np.unique(scales_of(panels(matrix, *how))).astype(np.float32), expected)


@pytest.mark.parametrize("how", FORMATS)
def test_data_that_others_stored_may_lie_in_any_order(rng: np.random.Generator, how: tuple[int, int]) -> None:
    """GPTQ has its integers in columns: what is unpacked of them is a view of another order."""
    bits, block = how
    matrix = rng.standard_normal((70, 512), dtype=np.float32)
    data, scale = format_of(bits, block).quantize_with_scales(matrix, block)
    turned = np.asfortranarray(data), np.asfortranarray(scale)
    assert not turned[0].flags.c_contiguous
    assert panels_of(*turned, bits).tobytes() == panels(matrix, bits, block).tobytes()
