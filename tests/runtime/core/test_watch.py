"""Watchers and their rounds; what becomes of them in a device is in golden/protocol."""

from __future__ import annotations

import math
from itertools import count

import pytest

from partc.errors import RunError
from partc.format.messages import Watch
from partc.format.readings import Readings
from partc.format.status import Vitals, Work
from partc.runtime.core.meter import Meter
from partc.runtime.core.source.watchers import Watchers

VITALS = Vitals(readings=Readings())


def watch(name: str, period_s: float) -> Watch:
    return Watch(ticket=name.encode().ljust(16, b"\0"), period_s=period_s)


def told(watchers: Watchers, until: float) -> dict[str, list[int]]:
    """Who gets the status when, where the devices a and b answer at once."""
    found: dict[str, list[int]] = {}
    while (now := watchers.due) is not None and now <= until:
        assert watchers.begins(["a", "b"], now)
        assert not list(watchers.answered(now))
        for device in ("a", "b"):
            watchers.sensed(device, VITALS, now)
        for watcher in watchers.answered(now):
            found.setdefault(watcher.ticket.rstrip(b"\0").decode(), []).append(round(now))
    return found


def test_each_watcher_has_a_period_of_its_own() -> None:
    watchers = Watchers()
    watchers.watch(b"x", watch("often", 2), 0.0)
    watchers.watch(b"y", watch("seldom", 5), 1.0)
    assert told(watchers, 11) == {"often": [0, 2, 4, 6, 8, 10], "seldom": [1, 6, 11]}


def test_the_end_of_a_watcher_is_not_that_of_all() -> None:
    watchers = Watchers()
    watchers.watch(b"x", watch("one", 2), 0.0)
    watchers.watch(b"x", watch("two", 2), 0.0)
    watchers.watch(b"y", watch("three", 2), 0.0)
    watchers.watch(b"x", watch("one", 0), 1.0)
    assert told(watchers, 2).keys() == {"two", "three"}
    watchers.left(b"x")
    assert not watchers.has_ended()
    watchers.left(b"y")
    assert watchers.due is None
    assert watchers.has_ended()
    assert not watchers.has_ended()


@pytest.mark.parametrize("period_s", [1e-9, math.nan])
def test_no_period_is_too_short(period_s: float) -> None:
    watchers = Watchers()
    watchers.watch(b"x", watch("fast", period_s), 0.0)
    assert told(watchers, 1.05) == {"fast": [round(step / 10) for step in range(11)]}


def test_watchers_are_limited() -> None:
    watchers = Watchers()
    names = (f"w{number}" for number in count())
    with pytest.raises(RunError, match="64 clients watch already"):
        for name in names:
            watchers.watch(b"x", watch(name, 1), 0.0)
    assert next(names) == "w65"


def test_a_meter_has_the_median_of_the_last_32() -> None:
    meter = Meter()
    for seconds in [9.0] * 100 + [1.0] * 17 + [5.0] * 15:
        meter.took("part_0", "decode", seconds)
    meter.took("part_0", "prefill", 3.0)
    assert meter.work() == (Work("part_0", "decode", 132, 1.0), Work("part_0", "prefill", 1, 3.0))
