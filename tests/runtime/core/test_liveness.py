from __future__ import annotations

import pytest

from partc.runtime.core.liveness import Progress, patience_s, step_s


def test_patience() -> None:
    assert patience_s(0.1) == 5.0
    assert patience_s(2.0) == 8.0
    assert patience_s(0.1, floor_s=1.0, slowest_s=0.5) == 2.0


def test_expected_seconds_of_a_step() -> None:
    """In proportion to its tokens, where there are more than the prediction is for."""
    predicted = {"prefill_s": 0.5, "decode_s": 0.1, "prefill_tokens": 64}
    assert step_s(predicted, "prefill", 1, 7) == 0.5
    assert step_s(predicted, "prefill", 2, 128) == 2.0
    assert step_s(predicted, "decode", 3, 1) == pytest.approx(0.3)
    assert step_s({}, "decode", 3, 1) == 0.0


def test_progress() -> None:
    progress = Progress(10.0)
    progress.moved(12.0)
    assert progress.since == 12.0
    assert progress.expires(5.0) == 17.0
