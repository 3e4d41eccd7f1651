"""Units of systemd: one template for all devices, and for each device a drop-in with its limits.

```
partc-runner@.service                   the same on every device
partc-runner@NAME.service.d/device.conf the address, the memory and, where it has one, the native runner of NAME
```
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from partc.deploy.runners import Files, Runner
from partc.format.files import RUNNER_FILE

TEMPLATE = """\
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

# It reads its folder, computes, and talks to its peers; it needs nothing else of the machine.
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
_NO_GPU = "PrivateDevices=yes\n"


def systemd_files(runners: Sequence[Runner], folder: str, runner: str) -> Files:
    """The units.

    Args:
        runners: the devices.
        folder: where the devices' folders lie on each device.
        runner: the path of partc-runner there, for devices without a native one.
    """
    unit = TEMPLATE.replace("@FOLDER@", folder).replace("@COMMAND@", _command(runner, folder))
    files = {"partc-runner@.service": unit}
    for one in runners:
        files[f"partc-runner@{one.device}.service.d/device.conf"] = _drop_in(one, folder)
    return files


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


def systemd_steps(runners: Sequence[Runner], build: str, folder: str) -> list[str]:
    """The commands that bring each device its files; `build` as the folder of the files has it."""
    steps = []
    for one in runners:
        name = one.device
        drop_in = f"partc-runner@{name}.service.d"
        steps += [
            f"ssh root@{name} mkdir -p {folder}",
            f"scp -rp {quote(f'{build}/devices/{name}')} root@{name}:{folder}/",
            f"scp -r partc-runner@.service {drop_in} root@{name}:/etc/systemd/system/",
            f"ssh root@{name} 'useradd -r partc; chown -R partc: {folder}/{name} && "
            f"systemctl daemon-reload && systemctl enable --now partc-runner@{name}'",
        ]
    return steps
