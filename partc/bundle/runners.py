"""Native runners: `make native` leaves one for each platform beside this package, and devices' folders get a copy.

A device with it needs its folder and nothing else. It is not among the files of build.json: what a build is does not
depend on what the compiling machine has built.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import partc
from partc.config.devices import DeviceConfig, DevicesConfig
from partc.errors import ConfigError
from partc.format.names import RUNNER_FILE

RUNNERS_VARIABLE = "PARTC_RUNNERS"
"""The environment variable that names another folder with native runners."""
_TARGETS = ("null", "tvm")
"""Targets whose files a native runner computes on a processor by itself. Those of `ort` it does with onnxruntime's
library, which it does not bring: so it must be asked for."""
_GPUS = ("cuda", "opencl")
"""Providers of target `tvm` that it computes with the driver of the GPU, which is a part of the system."""
_ANDROID = "aarch64-linux-android"
"""Its runner is static, and loads no library: neither onnxruntime nor a driver."""


def runner_of(device: DeviceConfig) -> Path | None:
    """The native runner for a device; None where Python runs it.

    Raises:
        ConfigError: devices.yaml asks for a native one, and there is none for its platform or its target.
    """
    serves = _serves(device)
    built = _folder() / device.platform / RUNNER_FILE
    if device.runner != "python" and serves and built.is_file():
        return built
    if device.runner == "native":
        raise _missing(device, serves)
    return None


def _serves(device: DeviceConfig) -> bool:
    """Whether the native runner of its platform computes what a device is given."""
    if device.target in _TARGETS and device.provider == "cpu":
        return True
    if device.platform == _ANDROID:
        return False
    if device.target == "ort":
        return device.provider == "cpu" and device.runner == "native"
    return device.target == "tvm" and device.provider in _GPUS


def check_runners(devices: DevicesConfig) -> None:
    """Refuse `runner: native` where there is none; cheap, so ask before the long work.

    Raises:
        ConfigError: names the device and what to do.
    """
    for device in devices.devices.values():
        runner_of(device)


def copy_runner(device: DeviceConfig, folder: Path) -> None:
    """Give the folder of a device its native runner, if it has one."""
    if (runner := runner_of(device)) is not None:
        shutil.copyfile(runner, folder / RUNNER_FILE)
        (folder / RUNNER_FILE).chmod(0o755)


def _folder() -> Path:
    """Platform → `partc-runner`, as a folder."""
    return Path(os.environ.get(RUNNERS_VARIABLE) or Path(partc.__file__).resolve().parent / "runners")


def _missing(device: DeviceConfig, serves: bool) -> ConfigError:
    where = f"device {device.name}: runner"
    if not serves:
        message = (
            f"the native runner does not compute `target: {device.target}` on `provider: {device.provider}`"
        )
        if device.platform == _ANDROID:
            message += f" on {_ANDROID}: it is one static file, which loads no library"
        hint = "write `runner: python`, or `target: tvm` with `provider: cpu`"
        return ConfigError(message, where=where, hint=hint)
    make = "make native-android" if device.platform == _ANDROID else f"make native PLATFORM={device.platform}"
    message = f"there is no native runner for {device.platform}"
    hint = f"run `{make}` in a checkout of partc, or write `runner: python`"
    return ConfigError(message, where=where, hint=hint)
