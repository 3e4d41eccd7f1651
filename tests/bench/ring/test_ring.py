"""The arithmetic of the ring bench, and what it says; nothing is measured here."""

from __future__ import annotations

import numpy as np
import pytest

from partc.runtime.client.results import Result, Timings
from tests.bench.ring.figures import Times, summary, table
from tests.bench.ring.requests import hop_times, pair_time, token_times
from tests.bench.ring.turns import Measured

COLUMNS = ("step", "started_s", "queue_s", "compute_s")
ABOUT = {"model": "110M", "quantize": "int4", "cores": 2, "load": 1.0, "rounds": 3, "reading_gain": 1.9}
SIZES = {"share": 1e9, "start_peak": 1.2e9, "resident": 1.1e9, "anonymous": 1e8, "files": 1e9}


def result_of(starts: list[float], late: float = 0.0) -> Result:
    """Two devices: `a` computes for 3 ms and begins at `starts`, `b` for 2 ms, 4 ms and `late` later."""
    steps = [*range(len(starts))]
    queued = [0.0] * len(starts)
    timings = {
        "a": np.array([steps, starts, queued, [3e-3] * len(starts)]).T,
        "b": np.array([steps, [start + 4e-3 + late for start in starts], queued, [2e-3] * len(starts)]).T,
    }
    tables = {name: Timings(COLUMNS, values) for name, values in timings.items()}
    return Result([[1]], [[2]], [""], ["length"], {}, 1.0, tables, [])


def test_a_token_is_computing_and_what_is_beyond() -> None:
    """The prompt is none, and neither is what comes behind the last token."""
    whole, compute = token_times(result_of([0.0, 1.0, 1.01, 1.03]), ["a", "b"])
    np.testing.assert_allclose(whole, [0.01, 0.02])
    np.testing.assert_allclose(compute, [5e-3, 5e-3])


@pytest.mark.parametrize("late", [0.0, 5e-4])
def test_a_hop_is_from_send_to_run(late: float) -> None:
    np.testing.assert_allclose(
        hop_times(result_of([0.0, 1.0, 1.01, 1.03], late), ["a", "b"]), [1e-3 + late] * 2
    )


def test_two_requests_count_while_both_are_there() -> None:
    """One begins earlier and ends earlier: from 1.0 to 1.4 there are two tokens of each."""
    first = result_of([0.0, 0.6, 0.8, 1.0, 1.2, 1.4])
    second = result_of([0.5, 1.0, 1.3, 1.4, 1.6])
    assert pair_time([first, second], "a") == pytest.approx(0.4 / 4)


def test_times_are_pooled() -> None:
    times = Times.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert times == (3.5, 2.0)
    assert Times(2.0, 1.0).speed_of(Times(1.0, 1.0)) == (0.5, 1.0)


def test_the_first_ring_is_what_others_are_held_against() -> None:
    alone = Measured([4e-3] * 3, [3e-3] * 3, [], [4e-3], [4e-3], [1.0])
    two = Measured([5e-3] * 3, [3e-3] * 3, [2e-4] * 3, [5e-3], [2.5e-3], [0.5])
    memory = {"uncut": {"a": SIZES}, "two": {"a": SIZES, "b": SIZES}}
    report = summary({"uncut": alone, "two": two}, memory, {"uncut": 1.0, "two": 1.5}, ABOUT)
    found = report["rings"]["two"]
    assert found["decode_speed"]["median"] == pytest.approx(0.8)
    assert found["prompt_speed"]["median"] == pytest.approx(2.0)
    assert found["pair_speed"]["median"] == pytest.approx(2.0)
    assert found["beyond_s"]["fast"] == pytest.approx(2e-3)
    text = table(report)
    assert "3 tokens: 5.00 (5.00) ms, 0.80 (0.80)x the speed" in text
    assert "beyond it 2000 (2000) us over 2 devices; a hop 200 (200) us" in text
    assert "two processes read 1.90x what one reads" in text
    assert "2.00 (2.00)x the speed, at best 1.50x" in text
    assert text.count("1.09x + 10 MB; at start 1200 MB, 1.20x") == 3
