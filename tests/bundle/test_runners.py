"""Native runners in the folders of a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from partc.bundle.runners import RUNNERS_VARIABLE, check_runners, runner_of
from partc.bundle.writer import write_bundle
from partc.config.devices import DeviceConfig, DevicesConfig
from partc.errors import ConfigError
from partc.format.names import BUILD_FILE, RUNNER_FILE
from targets.tvm.machine import PLATFORMS
from tests.bundle.tiny import module, write_checkpoint


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runners for two platforms."""
    folder = tmp_path / "runners"
    for name in ("x86_64-linux", "aarch64-linux-android"):
        (folder / name).mkdir(parents=True)
        (folder / name / RUNNER_FILE).write_text(name)
    monkeypatch.setenv(RUNNERS_VARIABLE, str(folder))
    return folder


def device(name: str = "a", **fields: Any) -> DeviceConfig:
    figures = {"flops_per_s": 1e9, "memory_bandwidth_bytes_per_s": 1e9, "memory_bytes": 1 << 30}
    return DeviceConfig(**{"name": name, "target": "tvm", "arch": "x86_64", **figures, **fields})


@pytest.mark.parametrize(
    ("fields", "platform"),
    [
        ({}, "x86_64-linux"),
        ({"target": "null"}, "x86_64-linux"),
        ({"arch": "aarch64", "options": {"platform": "aarch64-linux-android"}}, "aarch64-linux-android"),
        ({"arch": "aarch64"}, None),  # none is built
        ({"runner": "python"}, None),
        ({"target": "ort", "runner": "native"}, "x86_64-linux"),
        ({"target": "ort"}, None),  # it would need onnxruntime's library beside it
        ({"provider": "cuda"}, "x86_64-linux"),  # its driver is a part of the system
        ({"provider": "opencl", "runner": "native"}, "x86_64-linux"),
        ({"provider": "cuda", "runner": "python"}, None),
        ({"provider": "opencl", "arch": "aarch64", "options": {"platform": "aarch64-linux-android"}}, None),
        ({"target": "ort", "provider": "cuda"}, None),
    ],
)
def test_a_device_gets_the_runner_of_its_platform(
    built: Path, fields: dict[str, Any], platform: str | None
) -> None:
    assert runner_of(device(**fields)) == (platform and built / platform / RUNNER_FILE)


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ({"arch": "aarch64"}, "no native runner for aarch64-linux-gnu", "make native PLATFORM=aarch64-linux-gnu"),
        ({"target": "ort", "provider": "cuda"}, "does not compute `target: ort` on `provider: cuda`", "runner: python"),
        (
            {"provider": "opencl", "arch": "aarch64", "options": {"platform": "aarch64-linux-android"}},
            "`provider: opencl` on aarch64-linux-android: it is one static file, which loads no library",
            "`target: tvm` with `provider: cpu`",
        ),
    ],
)  # fmt: skip
def test_a_native_runner_that_is_asked_for_must_be_there(
    built: Path, fields: dict[str, Any], message: str, hint: str
) -> None:
    devices = DevicesConfig("a", {"a": device(), "b": device("b", runner="native", **fields)})
    with pytest.raises(ConfigError, match=message) as caught:
        check_runners(devices)
    assert caught.value.where == "device b: runner"
    assert hint in (caught.value.hint or "")


def test_a_phone_without_one_is_told_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RUNNERS_VARIABLE, str(tmp_path))
    phone = device(arch="aarch64", options={"platform": "aarch64-linux-android"}, runner="native")
    with pytest.raises(ConfigError) as caught:
        runner_of(phone)
    assert "`make native-android`" in (caught.value.hint or "")


def test_platforms_of_devices_are_those_of_the_target() -> None:
    assert {device(arch=arch).platform for arch in ("aarch64", "x86_64")} <= set(PLATFORMS)


def test_a_build_is_the_same_with_a_runner_and_without(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = DevicesConfig("phone", {name: device(name, target="null") for name in ("phone", "board")})
    checkpoint = write_checkpoint(tmp_path / "model")
    write_bundle(module(checkpoint, "null"), tmp_path / "with", devices)
    monkeypatch.setenv(RUNNERS_VARIABLE, str(tmp_path / "none"))
    write_bundle(module(checkpoint, "null"), tmp_path / "without", devices)
    for name in ("phone", "board"):
        first, second = (tmp_path / folder / "devices" / name for folder in ("with", "without"))
        assert (first / BUILD_FILE).read_bytes() == (second / BUILD_FILE).read_bytes()
        assert not (second / RUNNER_FILE).exists()
        assert (first / RUNNER_FILE).read_text() == "x86_64-linux"
        assert (first / RUNNER_FILE).stat().st_mode & 0o777 == 0o755
