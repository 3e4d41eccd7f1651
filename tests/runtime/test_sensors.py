"""Sensors: readings of a machine that is a folder, and of this one."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from partc.format.readings import Readings
from partc.runtime.shell.sensors import ROOT_VARIABLE, Sensors
from tests.runtime.fake_system import FakeSystem


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    return FakeSystem(tmp_path)


def read(system: FakeSystem) -> Readings:
    return Sensors(system.root).read()


def test_what_is_not_there_is_missing(system: FakeSystem) -> None:
    assert read(system) == Readings()


def test_every_reading(system: FakeSystem) -> None:
    system.memory(300 * 1024)
    system.write("proc/self/statm", "1000 25 3 1 0 9 0")
    system.pressure("cpu", 12.5)
    system.pressure("memory", 0.0)
    system.temperature(41.5)
    system.temperature(66.0, zone=1)
    system.battery(83)
    found = read(system)
    assert found.memory_own_bytes is not None
    assert found.memory_own_bytes % 25 == 0
    assert found == Readings(
        memory_available_bytes=300 * 1024,
        memory_own_bytes=found.memory_own_bytes,
        cpu_pressure=0.125,
        memory_pressure=0.0,
        temperature_c=66.0,
        battery=0.83,
        is_plugged=False,
    )


def test_readings_change(system: FakeSystem) -> None:
    system.temperature(40)
    sensors = Sensors(system.root)
    before = sensors.read()
    system.temperature(50)
    assert (before.temperature_c, sensors.read().temperature_c) == (40, 50)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sys/class/thermal/thermal_zone0/temp", "-273200"),
        ("sys/class/thermal/thermal_zone0/temp", "hot"),
        ("sys/class/thermal/thermal_zone0/temp", "nan"),
        ("proc/meminfo", "MemTotal: 5 kB"),
        ("proc/meminfo", "MemAvailable: much"),
        ("proc/self/statm", "7"),
        ("proc/pressure/cpu", "some"),
        ("proc/pressure/cpu", "some avg10=high"),
        ("sys/class/power_supply/BAT0/capacity", "50"),
        ("sys/class/power_supply/AC/online", ""),
    ],
)
def test_what_makes_no_sense_is_missing(system: FakeSystem, path: str, text: str) -> None:
    system.write(path, text)
    assert read(system) == Readings()


def test_a_mouse_is_no_battery_of_the_machine(system: FakeSystem) -> None:
    for name, text in (
        ("type", "Battery"),
        ("scope", "Device"),
        ("capacity", "3"),
        ("status", "Discharging"),
    ):
        system.write(f"sys/class/power_supply/mouse/{name}", text)
    assert read(system) == Readings()


@pytest.mark.parametrize(
    ("status", "online", "expected"),
    [
        ("Discharging", None, False),
        ("Charging", None, True),
        ("Full", None, True),
        ("Not charging", None, True),
        ("Unknown", None, None),
        ("Unknown", False, False),
        ("Discharging", True, True),
    ],
)
def test_plugged(system: FakeSystem, status: str, online: bool | None, expected: bool | None) -> None:
    system.battery(50, status)
    if online is not None:
        system.mains(online)
    assert read(system).is_plugged is expected


def test_the_root_is_a_variable_of_the_environment(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.battery(9)
    monkeypatch.setenv(ROOT_VARIABLE, str(system.root))
    assert Sensors().read().battery == 0.09


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_this_machine_is_read_within_a_millisecond() -> None:
    sensors = Sensors()
    found = sensors.read()
    assert found.memory_available_bytes
    assert found.memory_own_bytes
    times = []
    for _ in range(50):
        began = time.perf_counter()
        sensors.read()
        times.append(time.perf_counter() - began)
    assert min(times) < 1e-3
