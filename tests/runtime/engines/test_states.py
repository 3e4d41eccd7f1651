"""Rows of states in the form in which they travel."""

from __future__ import annotations

import numpy as np
import pytest

from partc.errors import RunError
from partc.format.build import State
from partc.runtime.engines.states import put_rows, rows_of

DIMS = {"batch": 2, "sequence": 5}
CACHE = State("k", "k", "k", "float16", ("batch", 3, 7, 4))
GROUPS = State("g", "g", "g", "float32", ("batch", 2, 3, 7, 4))
PANELS = State("p", "p", "p", "float32", ("batch", 3, 37, 4), layout="panels")
HEADLESS = State("h", "h", "h", "float32", ("batch", 7, 4))
WHOLE = State("w", "w", "w", "float32", ("batch", 6, 4, 4), "whole")
COUNT = State("n", "n", "n", "int64", ("batch",), "whole")


@pytest.mark.parametrize(
    ("state", "shape"),
    [
        (CACHE, (7, 3, 4)),
        (GROUPS, (7, 6, 4)),
        (PANELS, (37, 3, 4)),
        (HEADLESS, (7, 1, 4)),
        (WHOLE, (1, 1, 96)),
        (COUNT, (1, 1, 1)),
    ],
    ids=lambda item: item.name if isinstance(item, State) else None,
)
def test_every_state_has_positions_heads_and_a_size(state: State, shape: tuple[int, int, int]) -> None:
    array = np.zeros(state.buffer.sizes(DIMS), state.dtype)
    rows = np.arange(1, np.prod(shape) + 1).reshape(shape).astype(state.dtype)
    put_rows(state, array, 1, 0, rows)
    assert sorted(array[1][array[1] != 0]) == list(rows.ravel()), "each number has a place of its own"
    assert not array[0].any(), "the other sequence has none of them"
    np.testing.assert_array_equal(rows_of(state, array, 1, 0, shape[0]), rows)
    with pytest.raises(RunError, match=f"rows 0 to {shape[0] + 1} are none of its {shape[0]}"):
        rows_of(state, array, 1, 0, shape[0] + 1)


def test_a_row_is_a_position_of_all_heads() -> None:
    array = np.random.default_rng(0).random((2, 3, 7, 4)).astype(np.float16)
    rows = rows_of(CACHE, array, 1, 2, 5)
    for number in range(3):
        for head in range(3):
            np.testing.assert_array_equal(rows[number, head], array[1, head, 2 + number])


def test_a_row_in_panels_lies_across_one_of_them() -> None:
    array = np.random.default_rng(0).random(PANELS.buffer.sizes(DIMS)).astype(np.float32)
    assert array.shape == (2, 3, 3, 4, 16)
    rows = rows_of(PANELS, array, 1, 14, 35)
    assert rows.flags.c_contiguous
    for number in range(21):
        panel, lane = divmod(14 + number, 16)
        np.testing.assert_array_equal(rows[number], array[1, :, panel, :, lane])
    other = np.zeros_like(array)
    put_rows(PANELS, other, 0, 14, rows)
    np.testing.assert_array_equal(rows_of(PANELS, other, 0, 14, 35), rows)
    assert np.count_nonzero(other) == rows.size


def test_a_whole_state_is_one_row() -> None:
    array = np.zeros((2, 6, 4, 4), np.float32)
    given = np.arange(96, dtype=np.float32).reshape(1, 1, 96)
    put_rows(WHOLE, array, 1, 0, given)
    np.testing.assert_array_equal(array[1].ravel(), given.ravel())
    assert not array[0].any()
    with pytest.raises(RunError, match="rows 0 to 2 are none of its 1"):
        rows_of(WHOLE, array, 0, 0, 2)
