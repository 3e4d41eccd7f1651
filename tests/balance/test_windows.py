"""Windows out of the states of a ring."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from partc.balance.windows import Windows
from partc.format.placement import Stage
from partc.format.readings import LimitName, Limits, Readings
from partc.format.status import DeviceStatus, RingStatus, Steps, Vitals, Work


def device(
    name: str, first: int, last: int, seconds: float, reached: tuple[LimitName, ...] = (), **readings: Any
) -> DeviceStatus:
    """A device that computes some sub-modules in two pieces, half of the time in each."""
    work = tuple(Work(f"part_{name}{k}", "decode", 32, seconds / 2) for k in range(2))
    told = Readings(**readings)
    others = Work("part", "prefill", 1, 9.0), Work("sample", "decode", 32, 0.001)
    vitals = Vitals(readings=told, reached=reached, work=(*work, *others))
    return DeviceStatus(device=name, submodules=((first, last),), is_present=True, vitals=vitals)


def ring(steps: int, *devices: DeviceStatus, epoch: int = 0) -> RingStatus:
    return RingStatus(
        epoch=epoch,
        placement="",
        predicted={"prefill_s": 1.0, "decode_s": 0.1},
        steps=(Steps("prefill", 1, 5.0), Steps("decode", steps, 0.2)),
        tokens_left=100,
        running=1,
        devices=devices or (device("b", 4, 7, 0.06), device("a", 0, 3, 0.04)),
    )


def test_a_window_ends_after_32_steps() -> None:
    windows = Windows({})
    assert windows.take(ring(31)) is None
    window = windows.take(ring(33))
    assert window is not None
    assert window.stages == (Stage((0, 3), ("a",)), Stage((4, 7), ("b",)))
    assert (window.step_s, window.compute_s) == (0.2, {"a": 0.04, "b": 0.06})
    assert (window.remaining_tokens, window.fixed_s, window.requests) == (100, 0.002, 1)
    assert window.seconds["->"] == pytest.approx(0.2 - 0.1 - 0.002)
    assert windows.take(ring(64)) is None
    assert windows.take(ring(65)) is not None


def test_what_several_requests_wait_for_is_not_the_links() -> None:
    window = Windows({}).take(replace(ring(32), running=2))
    assert window is not None
    assert window.seconds == {"a": 0.04, "b": 0.06}


def test_windows_begin_anew_with_every_placement() -> None:
    windows = Windows({})
    assert windows.take(ring(320)) is not None
    assert windows.take(ring(16, epoch=1)) is None
    assert windows.take(ring(32, epoch=1)) is not None


def test_a_device_that_has_not_told_is_waited_for() -> None:
    silent = DeviceStatus(device="b", submodules=((4, 7),))
    assert Windows({}).take(ring(40, device("a", 0, 3, 0.04), silent)) is None


def test_limits_and_memory_are_told_in_words_and_bytes() -> None:
    limits = {"a": Limits(battery=0.3, temperature_c=80, memory_bytes=300_000_000)}
    hot = device(
        "a",
        0,
        7,
        0.1,
        ("battery", "temperature", "memory"),
        battery=0.28,
        temperature_c=81.4,
        memory_available_bytes=250_000_000,
    )
    idle = DeviceStatus(device="b", vitals=Vitals(readings=Readings(memory_available_bytes=7)))
    window = Windows(limits).take(ring(32, hot, idle))
    assert window is not None
    assert window.limits == {
        "a": "battery 28% (limit 30%), 81 C (limit 80 C), 238 MiB of memory available (limit 286 MiB)"
    }
    assert window.free_bytes == {"a": 250_000_000, "b": 7}
    assert window.compute_s == {"a": 0.1}
