"""Matrices in 4 bits whose columns make up for one another's errors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.hf


def _matrix(rows: int, columns: int, seed: int):  # type: ignore[no-untyped-def]
    import torch

    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def _inputs(rank: int, columns: int, seed: int):  # type: ignore[no-untyped-def]
    """Inputs that go together: few directions, and a little of everything."""
    noise, mixed = _matrix(4 * columns, columns, seed), _matrix(rank, columns, seed + 1)
    return _matrix(4 * columns, rank, seed + 2) @ mixed + 0.1 * noise


@pytest.mark.parametrize("block", [32, 64, 128])
def test_outputs_are_nearer_than_with_the_nearest_weights(block: int) -> None:
    import torch

    from partc.calibration.rounding import rounded
    from partc.ir.weight_formats import INT4

    weight, inputs = _matrix(48, 256, 1), _inputs(24, 256, 2)
    found = rounded(weight, inputs.T @ inputs, block)
    nearest = torch.from_numpy(INT4.dequantize(*INT4.quantize_with_scales(weight.numpy(), block)))
    errors = [float(((weight - other) @ inputs.T).square().mean()) for other in (found.matrix(), nearest)]
    assert errors[0] < 0.5 * errors[1]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(1, 9), blocks=st.integers(1, 5), known=st.booleans())
def test_integers_have_4_bits_and_scales_are_those_of_float16(
    seed: int, rows: int, blocks: int, known: bool
) -> None:
    import torch

    from partc.calibration.rounding import rounded

    weight = _matrix(rows, 32 * blocks, seed)
    weight[0] = 0.0
    inputs = _inputs(3, 32 * blocks, seed) * known
    inputs[:, ::7] = 0.0  # inputs that never come
    found = rounded(weight, inputs.T @ inputs, 32)
    assert found.values.dtype == torch.int8
    assert int(found.values.min()) >= -8
    assert int(found.values.max()) <= 7
    assert torch.equal(found.scales, found.scales.half().float())
    narrow = rounded(weight, inputs.T @ inputs, 32, torch.bfloat16).scales
    assert torch.equal(narrow, narrow.bfloat16().float())
    assert torch.isfinite(found.matrix()).all()
    assert not found.matrix()[0].any(), "zero stays zero"
    if not known:
        scale = found.scales.abs().repeat_interleave(32, dim=1)
        assert ((weight - found.matrix()).abs() <= 2 * scale + 1e-6).all(), "the largest may be cut off"


def test_the_words_are_those_of_compressed_tensors() -> None:
    """As its own library unpacks them."""
    import torch
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32

    from partc.calibration.packed import packed
    from partc.calibration.rounding import rounded

    found = rounded(_matrix(6, 64, 5), torch.zeros(64, 64), 32)
    parts = packed(found, torch.float32)
    values = unpack_from_int32(parts["weight_packed"], 4, torch.Size(parts["weight_shape"].tolist()))
    assert torch.equal(values, found.values)
