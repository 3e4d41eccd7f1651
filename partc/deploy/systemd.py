"""Units of systemd: one template for all devices, and for each device a drop-in with its limits.

```
partc-runner@.service                   the same on every device
partc-runner@NAME.service.d/device.conf the address, the memory and, where it has one, the native runner of NAME
partc-serve.service                     on the source: the endpoint that clients ask
```
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from shlex import quote

from partc.deploy import endpoint as door
from partc.deploy.endpoint import Endpoint, copy_endpoint
from partc.deploy.runners import Files, Runner
from partc.extras import wheel_command, wheel_name
from partc.format.names import RUNNER_FILE

_CONFINED = """\
# It reads its folder, computes, and talks to its peers or clients; it needs nothing else of the machine.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
ReadOnlyPaths=@FOLDER@
PrivateTmp=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged

[Install]
WantedBy=multi-user.target
"""
TEMPLATE = f"""\
[Unit]
Description=partc runner of %i
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=@COMMAND@
User=partc
Group=partc
# A runner that dies joins its ring again; 143 is how it ends when it is stopped.
Restart=always
RestartSec=1
SuccessExitStatus=143
MemorySwapMax=0
OOMPolicy=kill
LimitMEMLOCK=infinity
UMask=0077

{_CONFINED}"""
SERVE = f"""\
[Unit]
Description=OpenAI's API in front of the ring of @SOURCE@
Wants=network-online.target
After=network-online.target partc-runner@@SOURCE@.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=@COMMAND@
User=partc
Group=partc
# It waits for a ring that does not stand, and for a source that is lost; 143 is how it ends when it is stopped.
Restart=always
RestartSec=5
SuccessExitStatus=143
UMask=0077
PrivateDevices=yes

{_CONFINED}"""
SERVE_UNIT = "partc-serve.service"
_NO_GPU = "PrivateDevices=yes\n"
_EXTRAS = {"ort": "ort"}
"""Kind of an engine → the extra that a runner in Python needs for it."""


def systemd_files(runners: Sequence[Runner], endpoint: Endpoint | None, folder: str, runner: str) -> Files:
    """The units.

    Args:
        runners: the devices.
        endpoint: what `partc serve` needs; None: the model takes no text.
        folder: where the devices' folders lie on each device.
        runner: the path of partc-runner there, for devices without a native one; `partc` stands beside it.
    """
    unit = TEMPLATE.replace("@FOLDER@", folder).replace("@COMMAND@", _command(runner, folder))
    files = {"partc-runner@.service": unit}
    for one in runners:
        files[f"partc-runner@{one.device}.service.d/device.conf"] = _drop_in(one, folder)
    if endpoint is not None:
        files[SERVE_UNIT] = _serve_unit(endpoint, folder, runner)
    return files


def _serve_unit(endpoint: Endpoint, folder: str, runner: str) -> str:
    place = f"{folder}/{door.FOLDER}"
    command = (
        f"{PurePosixPath(runner).with_name('partc')} serve {place} --connect 127.0.0.1:{endpoint.source.port} "
        f"--host 0.0.0.0 --port {door.PORT} --api-key-file {place}/{door.KEYS_FILE}"
    )
    given = {"@SOURCE@": endpoint.source.device, "@COMMAND@": command, "@FOLDER@": place}
    text = SERVE
    for name, value in given.items():
        text = text.replace(name, value)
    return text


def _command(runner: str, folder: str) -> str:
    return f"{runner} --bundle {folder}/%i --listen 0.0.0.0:${{PARTC_PORT}}"


def _drop_in(runner: Runner, folder: str) -> str:
    lines = [
        "[Service]",
        f"Environment=PARTC_PORT={runner.port}",
        "# What the plan may give this device, and the runner itself.",
        f"MemoryMax={runner.limit_bytes}",
    ]
    if runner.is_native:
        native = f"{folder}/{runner.device}/{RUNNER_FILE}"
        lines += [
            "# Its folder has a runner that needs no Python.",
            "ExecStart=",
            f"ExecStart={_command(native, folder)}",
        ]
    return "\n".join(lines) + "\n" + ("" if runner.is_gpu else _NO_GPU)


def systemd_steps(
    runners: Sequence[Runner], endpoint: Endpoint | None, build: str, folder: str, runner: str
) -> list[str]:
    """The commands that bring each device its files; `build` as the folder of the files has it."""
    needs = {one.device: _extras_on(one, endpoint) for one in runners}
    steps = [wheel_command(".")] if any(extras is not None for extras in needs.values()) else []
    for one in runners:
        name = one.device
        drop_in = f"partc-runner@{name}.service.d"
        extras = needs[name]
        steps += [
            *([] if extras is None else _install(name, extras, runner)),
            f"ssh root@{name} mkdir -p {folder}",
            f"scp -rp {quote(f'{build}/devices/{name}')} root@{name}:{folder}/",
            f"scp -r partc-runner@.service {drop_in} root@{name}:/etc/systemd/system/",
            f"ssh root@{name} 'useradd -r partc; chown -R partc: {folder}/{name} && "
            f"systemctl daemon-reload && systemctl enable --now partc-runner@{name}'",
        ]
    return [*steps, *([] if endpoint is None else _endpoint_steps(endpoint, build, folder))]


def _extras_on(one: Runner, endpoint: Endpoint | None) -> list[str] | None:
    """The extras of partc that a device needs; None: a native runner is all that it has to have."""
    serves = endpoint is not None and endpoint.source.device == one.device
    engine = [] if one.is_native else [_EXTRAS[one.engine]] if one.engine in _EXTRAS else []
    return None if one.is_native and not serves else [*engine, *(["serve"] if serves else [])]


def _install(device: str, extras: Sequence[str], runner: str) -> list[str]:
    """The commands that put partc's programs where the units look for them."""
    where, wheel = PurePosixPath(runner).parent, f"/tmp/{wheel_name()}"
    wanted = f"{wheel}[{','.join(extras)}]" if extras else wheel
    return [
        f"scp {wheel_name()} root@{device}:/tmp/",
        f"ssh root@{device} 'python3 -m venv {where.parent} && {where}/pip install \"{wanted}\"'",
    ]


def _endpoint_steps(endpoint: Endpoint, build: str, folder: str) -> list[str]:
    name, place = endpoint.source.device, f"{folder}/{door.FOLDER}"
    return [
        *copy_endpoint(endpoint, build, name, folder, with_keys=True),
        door.NEW_KEY,
        f"scp -p {door.KEYS_FILE} root@{name}:{place}/",
        f"scp {SERVE_UNIT} root@{name}:/etc/systemd/system/",
        f"ssh root@{name} 'chown -R partc: {place} && systemctl daemon-reload && "
        f"systemctl enable --now {SERVE_UNIT.removesuffix('.service')}'",
    ]
