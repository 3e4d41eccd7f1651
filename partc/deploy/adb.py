"""Phones over adb: a device's folder is pushed, and the native runner in it started from the shell.

A phone has no Python, so the folder must hold a native runner. It lies below /data/local/tmp, from which the shell's
user may run programs (an app's user may not run what lies in its own data; docs/android.md).
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from partc.deploy.runners import PORT
from partc.deploy.tools import run_tool
from partc.errors import BundleError, ConfigError
from partc.format.names import RUNNER_FILE, device_folders
from partc.format.role import Role, load_role
from partc.runtime.shell.addresses import is_loopback

FOLDER = "/data/local/tmp/partc"
"""The folder on a phone, for one folder a device."""
_PLATFORM = "aarch64-linux-android"
_LOOKS = "1 2 3 4 5"
"""Looks after a runner that was started, 0.3 s apart: one with a wrong folder ends in that time."""


@dataclass(frozen=True)
class Phone:
    """A device of a build that is a phone."""

    device: str
    serial: str | None = None
    """Its name in the list of `adb devices`; None: the only one there is."""


@dataclass(frozen=True)
class AdbSettings:
    """Options of all phones."""

    folder: str = FOLDER
    peers: Mapping[str, str] = field(default_factory=dict)
    """Device → HOST:PORT, where devices.yaml has none."""
    forward: bool = False
    """Lead the ports of the ring through the cable: the phone's to this machine, and those at loopback addresses of
    this machine to the phone."""


def phones_of(build: Path) -> list[Phone]:
    """The devices of a build whose code is for Android.

    Raises:
        BundleError: there are none.
    """
    roles = [load_role(folder) for folder in device_folders(build)]
    found = [
        Phone(role.device)
        for role in roles
        if role.engine.library is not None and role.engine.library.platform == _PLATFORM
    ]
    if not found:
        hint = "name the device that is one: --phone NAME"
        raise BundleError("no device of this build is a phone", where=str(build), hint=hint)
    return found


def deploy_phone(build: Path, phone: Phone, settings: AdbSettings, tell: Callable[[str], None]) -> None:
    """Push a device's folder and start its runner; one that runs there is ended first.

    Raises:
        BundleError: the device has no native runner.
        ConfigError: an address is a name, which a phone does not resolve.
        RunError: adb is not there, or a command failed; with what it said.
    """
    for command in adb_commands(build, phone, settings):
        tell(shlex.join(["adb", *command]))
        _adb(command)


def adb_commands(build: Path, phone: Phone, settings: AdbSettings) -> list[list[str]]:
    """The words behind `adb` that bring a device to a phone; raises what `deploy_phone` does of the build."""
    folder = build / "devices" / phone.device
    role = load_role(folder)
    if not (folder / RUNNER_FILE).is_file():
        hint = "run `make native-android` in a checkout of partc, and compile again"
        raise BundleError(f"{phone.device} has no native runner", where=str(folder), hint=hint)
    addresses = {**role.addresses, **settings.peers}
    for device, address in addresses.items():
        _check_numeric(device, address)
    choice = ["-s", phone.serial] if phone.serial else []
    shell = [*choice, "shell"]
    return [
        [*shell, f"mkdir -p {settings.folder} && cd {settings.folder} && {_stop(phone.device)}"],
        [*choice, "push", str(folder), f"{settings.folder}/"],
        *[[*choice, *words] for words in (_forwards(role, addresses) if settings.forward else [])],
        [*shell, f"cd {settings.folder} && {_start(role, addresses, settings)}"],
    ]


def _stop(device: str) -> str:
    """End the runner that was started last, if it is still there, and remove its files: a runner refuses old ones."""
    return (
        f'if {_runs(device)}; then kill "$(cat {device}.pid)"; while {_runs(device)}; do sleep 0.1; done; fi; '
        f"rm -rf {device} {device}.pid"
    )


def _runs(device: str) -> str:
    """Whether the runner that was started last is there: its number may be another program's by now."""
    return f'grep -q {RUNNER_FILE} "/proc/$(cat {device}.pid 2>/dev/null)/cmdline" 2>/dev/null'


def _start(role: Role, addresses: Mapping[str, str | None], settings: AdbSettings) -> str:
    """Start the runner so that it outlives the shell, and see that it did not end at once.

    adb gives all users the rights that the owner of a file has; a runner refuses keys that others can read.
    """
    device = role.device
    words = [f"./{device}/{RUNNER_FILE}", "--bundle", device, "--listen", _listen(addresses[device])]
    words += [
        word
        for name, address in settings.peers.items()
        if name != device
        for word in ("--peer", f"{name}={address}")
    ]
    return (
        f"chmod -R go-rwx {device} && chmod 700 {device}/{RUNNER_FILE} && "
        f"(nohup {shlex.join(words)} > {device}.log 2>&1 < /dev/null & echo $! > {device}.pid) && "
        f"for _ in {_LOOKS}; do sleep 0.3; {_runs(device)} || {{ cat {device}.log; exit 1; }}; done"
    )


def _listen(address: str | None) -> str:
    """All interfaces, but where the address is a loopback one: then the cable alone leads there."""
    if address is None:
        return f"0.0.0.0:{PORT}"
    host, _, port = address.rpartition(":")
    return address if is_loopback(host) else f"0.0.0.0:{port}"


def _forwards(role: Role, addresses: Mapping[str, str | None]) -> list[list[str]]:
    own = (addresses[role.device] or f":{PORT}").rpartition(":")[2]
    found = [["forward", f"tcp:{own}", f"tcp:{own}"]]
    for device, address in addresses.items():
        host, _, port = (address or "").rpartition(":")
        if device != role.device and is_loopback(host):
            found.append(["reverse", f"tcp:{port}", f"tcp:{port}"])
    return found


def _check_numeric(device: str, address: str | None) -> None:
    host = (address or "").rpartition(":")[0]
    try:
        ipaddress.ip_address(host.strip("[]") or "::")
    except ValueError:
        hint = "write the number in devices.yaml, as in 192.0.2.7:5555, or give it by --peer"
        raise ConfigError(
            f"{address!r} is a name, which programs of the shell cannot look up on Android",
            where=device,
            hint=hint,
        ) from None


def _adb(words: Sequence[str]) -> None:
    run_tool(
        ["adb", *words],
        install="install Android's platform tools",
        look="adb devices lists what is connected",
    )
