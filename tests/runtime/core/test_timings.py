from __future__ import annotations

import numpy as np

from partc.runtime.core.device.timings import Timing, timing_table, whole_steps


def test_the_parts_of_a_prompt_count_as_one_step() -> None:
    """It began with the first of them."""
    parts = [
        Timing(7, 0, 1.0, 0.5, 0.25, 10, 20, {"b": 1.0}),
        Timing(7, 0, 2.0, 0.5, 0.25, 10, 20, {"b": 2.0, "c": 4.0}, epoch=3),
        Timing(7, 1, 3.0, 0.125, 0.0, 1, 2),
    ]
    assert whole_steps(parts) == [
        Timing(7, 0, 1.0, 1.0, 0.5, 20, 40, {"b": 3.0, "c": 4.0}, epoch=3),
        Timing(7, 1, 3.0, 0.125, 0.0, 1, 2),
    ]
    assert parts[0].compute_s == 0.5, "the parts stay as they were"


def test_a_table_has_a_column_for_every_device_that_was_waited_for() -> None:
    columns, table = timing_table(
        [Timing(7, 0, 1.0, wait_s={"c": 4.0}), Timing(7, 1, 2.0, wait_s={"b": 3.0})]
    )
    assert columns[:2] == ["step", "started_s"]
    assert columns[6:] == ["epoch", "wait_s:b", "wait_s:c"]
    assert table[:, 7:].tolist() == [[0.0, 4.0], [3.0, 0.0]]


def test_a_table_without_steps() -> None:
    columns, table = timing_table([])
    assert table.shape == (0, len(columns))
    assert table.dtype == np.float64
