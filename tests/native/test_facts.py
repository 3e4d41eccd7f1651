"""Facts that the shell of a runner knows without a connection: those of the native one are Python's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from partc.errors import BundleError
from partc.format.codec import decode
from partc.format.files import verify_files
from partc.format.messages import Sensed
from partc.format.readings import Readings
from partc.format.role import load_role
from partc.runtime.shell.addresses import address_towards
from partc.runtime.shell.limits import frame_limit, header_limit
from partc.runtime.shell.sensors import ROOT_VARIABLE, Sensors
from tests.native.conftest import Program
from tests.runtime.bundles import graph_model, language_model
from tests.runtime.fake_system import FakeSystem

pytestmark = pytest.mark.native


def all_readings(system: FakeSystem) -> None:
    system.memory(300 * 1024)
    system.pressure("cpu", 12.5)
    system.pressure("memory", 120.0)
    system.temperature(41.5)
    system.temperature(66.0, zone=1)
    system.battery(83)


def headset(system: FakeSystem) -> None:
    system.write("sys/class/power_supply/hidpp/scope", "Device")
    system.write("sys/class/power_supply/hidpp/type", "Battery")
    system.write("sys/class/power_supply/hidpp/capacity", "3")


def nonsense(system: FakeSystem) -> None:
    system.write("sys/class/thermal/thermal_zone0/temp", "-273200")
    system.write("proc/meminfo", "MemAvailable: much")
    system.write("proc/pressure/cpu", "some avg10=high")


def plugged_in(system: FakeSystem) -> None:
    system.mains(online=True)
    system.battery(101, "Not charging")


@pytest.mark.parametrize("fill", [all_readings, headset, nonsense, plugged_in])
def test_sensors(
    fill: Callable[[FakeSystem], None], tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(FakeSystem(tmp_path))
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    assert sensed(program) == Sensors(tmp_path).read()


def test_the_sensors_of_this_machine(program: Program) -> None:
    native, own = sensed(program), Sensors().read()
    assert native.memory_own_bytes and own.memory_own_bytes
    assert native.memory_own_bytes < own.memory_own_bytes
    assert native.memory_available_bytes == pytest.approx(own.memory_available_bytes, rel=0.5)
    assert (native.battery, native.is_plugged) == (own.battery, own.is_plugged)


def sensed(program: Program) -> Readings:
    message = decode(bytes.fromhex(program("facts", "sensors")), 1 << 16)
    assert isinstance(message, Sensed)
    return message.vitals.readings


@pytest.mark.parametrize("is_large", [False, True])
def test_limits_of_messages(is_large: bool, tmp_path: Path, program: Program) -> None:
    language, graph = (
        language_model(engine="null", max_batch=3, max_sequence=4096),
        graph_model(engine="null"),
    )
    if is_large:
        language.dims = {"batch": 3, "sequence": 4096}
        graph.dims = {"rows": 1 << 20}
    language.write(tmp_path / "language")
    graph.write(tmp_path / "graph")
    folders = sorted(tmp_path.glob("*/devices/*"))
    assert len(folders) > 3
    for folder in folders:
        role = load_role(folder)
        assert program("facts", "limits", folder) == f"{header_limit(role)} {frame_limit(role)}"


@pytest.mark.parametrize("listening", ["192.0.2.7:5555", "0.0.0.0:5555", "*:5555", "[::]:5555"])
@pytest.mark.parametrize("advertised", ["", "phone.example", "198.51.100.4:80", "[2001:db8::1]"])
def test_the_address_towards_a_peer(listening: str, advertised: str, program: Program) -> None:
    for peer in ("127.0.0.1:9", "nowhere.invalid:1", "[::1]:9"):
        expected = address_towards(peer, listening, advertised or None)
        assert program("facts", "towards", peer, listening, advertised) == expected


def damage(folder: Path) -> None:
    next(folder.glob("*.txt")).write_text("x")


def add(folder: Path) -> None:
    (folder / "weights").mkdir()
    (folder / "weights" / "foreign").write_text("x")


def remove(folder: Path) -> None:
    next(folder.glob("*.txt")).unlink()


def link(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "build.json")


def link_hard(folder: Path) -> None:
    (folder.parent / "hard").hardlink_to(next(folder.glob("*.txt")))


@pytest.mark.parametrize("change", [damage, add, remove, link, link_hard])
def test_files_are_held_against_the_build(
    change: Callable[[Path], None], tmp_path: Path, program: Program
) -> None:
    folder = language_model(engine="null").write(tmp_path) / "devices" / "a"
    assert program("facts", "verify", folder) == ""
    change(folder)
    with pytest.raises(BundleError) as raised:
        verify_files(folder, load_role(folder).files)
    error = raised.value
    assert program("facts", "verify", folder) == f"{error.where}: {error.message}\n  hint: {error.hint}"
