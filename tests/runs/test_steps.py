"""A step by the clocks of its devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partc.runs.records import RequestRecord
from partc.runs.steps import Steps
from tests.profiler.runs import Truth

RING = Truth(
    computing={"phone": (0.5, 0.25), "board": (1.0, 0.75)},
    own={"phone": 0.0625, "board": 0.125},
    links={"phone": (2.0, 1.0), "board": (4.0, 3.0)},
)


def steps(record: RequestRecord) -> Steps:
    return Steps(record, "phone")


def test_what_a_step_is_made_of() -> None:
    found = steps(RING.request(tokens=4))
    assert found.lasted == pytest.approx({0: 7.6875, 1: 5.1875, 2: 5.1875, 3: 5.1875 - 0.0625})
    assert found.computed_s["board"] == pytest.approx({0: 1.0, 1: 0.75, 2: 0.75, 3: 0.75})
    assert found.between_s == pytest.approx({0: 6.1875, 1: 4.1875, 2: 4.1875, 3: 4.125})


def test_the_time_of_a_runner_itself_is_on_its_own_clock() -> None:
    found = steps(RING.request(tokens=4, clocks={"board": -77.0}))
    for device, own in RING.own.items():
        assert found.own_s[device] == pytest.approx(dict.fromkeys(range(3), own)), device
        assert found.own_of(device, 3) is None, "the last step is followed by none"


def test_what_a_device_queued_for_is_nobodys_own() -> None:
    record = RING.request(tokens=3)
    table = record.timings["board"].table
    table[:, 2] -= 0.25
    table[:, 3] += 0.25
    found = steps(record)
    assert found.own_s["board"] == pytest.approx({0: 0.125, 1: 0.125})
    assert found.between_s[1] == pytest.approx(4.1875)


def test_requests_at_once() -> None:
    first, second, later = (steps(RING.request(tokens=3, began=began)) for began in (0.0, 15.0, 40.0))
    assert first.overlaps(second) and second.overlaps(first)
    assert not first.overlaps(later) and not first.overlaps(first)
    nothing = steps(replace(RING.request(), timings={}))
    assert not nothing.overlaps(first) and not first.overlaps(nothing)
