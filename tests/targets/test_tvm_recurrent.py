"""Kernels with states that a step rewrites, against the reference of their operators: borders of chunks, lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from partc.ir.operators import CAUSAL_CONV, LINEAR_ATTENTION
from tests.targets.numpy_attention import Array

pytestmark = pytest.mark.tvm
pytest.importorskip("tvm")

from targets.tvm.kernels.recurrent import attend_by_columns, convolve  # noqa: E402
from targets.tvm.kernels.recurrent_chunks import CHUNK, attend_by_chunks, fits  # noqa: E402
from tests.targets.test_tvm_kernels import built, numbers  # noqa: E402

Sizes = tuple[int, int, int, int, int, int]
"""Batch, rows, heads, groups, k, v."""
SCALE = 0.7
SIZES: Mapping[str, Sizes] = {
    "a group for all heads": (1, 2 * CHUNK, 3, 1, 16, 32),
    "two heads a group": (2, 2 * CHUNK + 3, 4, 2, 8, 8),
    "a run of columns and a half": (1, CHUNK, 2, 2, 20, 24),
    "one row too many": (2, CHUNK + 1, 2, 1, 4, 64),
}


def operands(sizes: Sizes, delta: bool, channels: int = 1) -> list[Array]:
    """state, query, key, value, decay, and with the delta rule beta; keys have length 1 as in models."""
    B, S, H, G, K, V = sizes
    key = numbers(B, S, G, K, seed=1)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    decay = -np.exp(
        2 * numbers(B, S, H, channels, seed=2)
    )  # of what hardly decays, and of what is gone at once
    found = [numbers(B, H, K, V), numbers(B, S, G, K, seed=3), key, numbers(B, S, H, V, seed=4), decay]
    rate = 1 / (1 + np.exp(-numbers(B, S, H, seed=5)))
    return [*found, rate if delta else np.zeros((1, 1, 1), np.float32)]


def expected(given: list[Array], length: Array, delta: bool) -> list[Array]:
    """out and the state behind it."""
    out, last = LINEAR_ATTENTION.reference(
        [*given[:5], length, given[5] if delta else None], {"scale": SCALE}
    )
    for b, rows in enumerate(length):
        out[b, rows:] = 0
    return [out, last]


def found(kernel: Any, given: list[Array], length: Array) -> list[Array]:
    """The same by a kernel that is built."""
    out = np.full_like(given[3], 1e6)
    called = kernel(*(one.copy() for one in given[:5]), length, given[5], out)
    return [called[-1], called[0]]


def error(one: list[Array], other: list[Array]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_chunks(name: str, delta: bool) -> None:
    sizes = SIZES[name]
    B, S, _, _, K, _ = sizes
    assert fits(S, K, by_channel=False)
    kernel = built(attend_by_chunks(*sizes, delta, SCALE))
    given = operands(sizes, delta)
    for last in (0, 1, CHUNK - 1, CHUNK, S - 1, S):
        length = np.array([last, S][:B])
        want = expected(given, length, delta)
        assert error(found(kernel, given, length), want) < 2e-5
        if last:
            assert error(found(kernel, given, length), expected(given, length - 1, delta)) > 1e-3
    changed = [one.copy() for one in given]
    changed[4] = changed[4] * np.float32(0.9)
    assert error(found(kernel, changed, length), want) > 1e-3


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(("delta", "border"), [(False, 1), (True, CHUNK + 5)])
def test_a_state_is_carried_from_step_to_step(delta: bool, border: int) -> None:
    """A prompt at once, and in two steps: a token and the rest, or at a border that is none of a chunk."""
    B, S, H, G, K, V = sizes = (1, 2 * CHUNK + 8, 4, 2, 16, 64)
    given, whole = operands(sizes, delta), np.array([S])
    want = expected(given, whole, delta)
    state, outs = given[0], []
    for start, end in ((0, border), (border, S)):
        rows = end - start
        padded = max(rows, CHUNK) if rows > 1 else 1
        part = [_rows(one, start, padded) for one in given[1:]]
        step = (B, padded, H, G, K, V)
        kernel = built(
            attend_by_chunks(*step, delta, SCALE)
            if padded >= CHUNK
            else attend_by_columns(*step, False, delta, SCALE)
        )
        out, state = found(kernel, [state, *part], np.array([rows]))
        outs.append(out[:, :rows])
    assert error([np.concatenate(outs, 1), state], want) < 2e-5
    assert error([np.concatenate(outs, 1), given[0]], want) > 1e-3


def _rows(one: Array, start: int, count: int) -> Array:
    """So many rows from `start` on, filled up with what no result may contain; a rate that is none stays."""
    if one.shape == (1, 1, 1):
        return one
    rows = one[:, start : start + count]
    filler = np.full((one.shape[0], count - rows.shape[1], *one.shape[2:]), 3.0, np.float32)
    return np.concatenate([rows, filler], 1)


def test_chunks_are_for_decays_of_heads_and_prompts_alone() -> None:
    assert not fits(CHUNK - 1, 16, by_channel=False)
    assert not fits(CHUNK, 16, by_channel=True)
    assert not fits(CHUNK, 6, by_channel=False)


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize(
    ("sizes", "channels"),
    [
        ((1, 1, 2, 1, 12, 128), 1),
        ((2, 1, 2, 2, 16, 96), 16),
        ((1, 5, 2, 1, 6, 96), 6),
        ((2, 3, 4, 2, 8, 8), 1),
    ],
)
def test_columns(sizes: Sizes, channels: int, delta: bool) -> None:
    B, S = sizes[:2]
    given = operands(sizes, delta, channels)
    kernel = built(attend_by_columns(*sizes, channels > 1, delta, SCALE))
    for last in (S, 0):
        length = np.array([last, S][:B])
        assert error(found(kernel, given, length), expected(given, length, delta)) < 1e-5
    assert error(found(kernel, given, np.full(B, S)), expected(given, length, delta)) > 1e-3


def swish(x: Any) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


@pytest.mark.parametrize(
    ("channels", "kernel", "rows"), [(192, 4, 1), (64, 4, 7), (48, 2, 2), (6, 3, 4), (16, 4, 3)]
)
def test_convolution_with_an_activation(channels: int, kernel: int, rows: int) -> None:
    state, x = numbers(2, kernel - 1, channels), numbers(2, rows, channels, seed=1)
    weight, bias = numbers(channels, kernel, seed=2), numbers(channels, seed=3)
    function = built(convolve(2, rows, channels, kernel, "float32", "swish"))
    for last in (rows, 0):
        length = np.array([last, rows])
        plain, want = CAUSAL_CONV.reference([state, x, weight, length, bias], {})
        called = function(state.copy(), x, weight, length, bias, np.full_like(x, 1e6))
        activated = swish(plain)
        assert error([called[-1], called[0]], [activated, want]) < 1e-5
        assert error([called[-1]], [plain]) > 1e-2
