"""Devices over ssh: folders and units are sent, and systemd starts the runners.

Everything is sent beside what runs, to every device, before anything is replaced: a device that cannot be reached, or
has no room, leaves the ring as it was. Then the runners change one after another, the source's last. Keys travel in
ssh alone; on a device they lie in a folder of root's until the user `partc` has them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from partc.deploy.runners import Runner, write_files
from partc.deploy.systemd import systemd_files
from partc.deploy.tools import run_tool
from partc.errors import ConfigError
from partc.scratch import scratch_folder

UNITS = "/etc/systemd/system"
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""No question is asked: a host whose key or password is missing is an error at once."""
_HOST = re.compile(r"^([A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9._-]*$")
_LOOKS = "1 2 3 4 5"
"""Looks after a unit that was started, 0.3 s apart: a runner with a wrong folder ends in that time."""


@dataclass(frozen=True)
class SshSettings:
    """Options of all devices."""

    folder: str
    """The folder of the devices' folders, on each device."""
    runner: str
    """The path of partc-runner there, for devices without a native one."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Device → [USER@]HOST or a name in ~/.ssh/config; root at the device's own name where there is none."""

    def host(self, device: str) -> str:
        """The place where ssh finds a device."""
        return self.hosts.get(device, f"root@{device}")


def check_hosts(hosts: Mapping[str, str], runners: Sequence[Runner]) -> None:
    """Refuses hosts of devices that the build does not have, and names that ssh would take for options.

    Raises:
        ConfigError: there is one.
    """
    devices = [one.device for one in runners]
    for device, host in hosts.items():
        if device not in devices:
            hint = f"its devices: {', '.join(devices)}"
            raise ConfigError(f"the build has no device {device!r}", where="--host", hint=hint)
        if not _HOST.match(host):
            hint = "write [USER@]HOST, or a name that ~/.ssh/config explains"
            raise ConfigError(f"{host!r} is not a host", where=f"--host {device}", hint=hint)


def deploy_over_ssh(
    build: Path, runners: Sequence[Runner], settings: SshSettings, tell: Callable[[str], None]
) -> None:
    """Send every device its folder and its units, then start the runners anew, the source's last.

    Raises:
        RunError: ssh or scp is not there, a host does not answer, or a command failed on it; with what it said. Where
            this happens before the first runner is replaced, everything that runs is as it was.
    """
    order = sorted(runners, key=lambda one: (one.is_source, one.device))
    with scratch_folder("units") as units:
        write_files(units, systemd_files(runners, None, settings.folder, settings.runner))
        steps = [(one, send_commands(build, units, one, settings)) for one in order]
        steps += [(one, [start_command(one, settings)]) for one in order]
        for one, commands in steps:
            for command in commands:
                tell(shlex.join(command))
                run_tool(
                    command,
                    install="install OpenSSH's client",
                    look=f"ssh {settings.host(one.device)} must work without a question, for a user with root's rights",
                    where=one.device,
                )


def send_commands(build: Path, units: Path, one: Runner, settings: SshSettings) -> list[list[str]]:
    """The commands that bring a device its folder and its units, beside what it has."""
    host, new = settings.host(one.device), shlex.quote(_new(one, settings))
    ready = (
        "command -v systemctl > /dev/null || { echo there is no systemd >&2; exit 1; }; umask 077 && "
        f"rm -rf {new} && mkdir -p {new}/units && chmod 755 {shlex.quote(settings.folder)} && "
        "{ id -u partc > /dev/null 2>&1 || useradd -r partc; }"
    )
    sent = [str(units / name) for name in ("partc-runner@.service", _drop_in(one))]
    return [
        ["ssh", *_OPTIONS, host, ready],
        ["scp", *_OPTIONS, "-rpq", str(build / "devices" / one.device), f"{host}:{_new(one, settings)}/"],
        ["scp", *_OPTIONS, "-rq", *sent, f"{host}:{_new(one, settings)}/units/"],
    ]


def start_command(one: Runner, settings: SshSettings) -> list[str]:
    """The command that puts what was sent in the place of what is there, and starts the runner."""
    unit, new = f"partc-runner@{one.device}", shlex.quote(_new(one, settings))
    place = shlex.quote(f"{settings.folder}/{one.device}")
    script = (
        f"{{ systemctl stop {unit} 2> /dev/null || true; }} && rm -rf {place} {UNITS}/{_drop_in(one)} && "
        f"mv {new}/{one.device} {place} && chown -R partc: {place} && "
        f"chmod -R u=rwX,go=rX {new}/units && cp -r {new}/units/. {UNITS}/ && rm -rf {new} && "
        f"systemctl daemon-reload && systemctl enable {unit} && systemctl restart {unit} && "
        f"for _ in {_LOOKS}; do sleep 0.3; systemctl is-active --quiet {unit} || "
        f"{{ journalctl -u {unit} -n 5 -o cat >&2; exit 1; }}; done"
    )
    return ["ssh", *_OPTIONS, settings.host(one.device), script]


def _new(one: Runner, settings: SshSettings) -> str:
    return f"{settings.folder}/.{one.device}.new"


def _drop_in(one: Runner) -> str:
    return f"partc-runner@{one.device}.service.d"
