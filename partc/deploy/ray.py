"""A fleet of one ring for Ray: fleet.yaml, and the commands that make the cluster (`partc fleet`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from shlex import quote

from partc.deploy.runners import Files, Runner

FLEET_FILE = "fleet.yaml"


def ray_files(runners: Sequence[Runner], build: str, folder: str, ring: str) -> Files:
    """fleet.yaml for one ring.

    Args:
        runners: the devices.
        build: path of the build, on the head of the cluster.
        folder: where the devices' folders lie on each device.
        ring: its name.
    """
    lines = [
        "# `partc fleet up fleet.yaml` makes a Ray cluster what this says; further rings go below the first.",
        "rings:",
        f"  {json.dumps(ring)}:",
        f"    build: {json.dumps(build)}",
        f"    folder: {json.dumps(folder)}",
        "    devices:",
        *(f"      {json.dumps(one.device)}: {_device(one)}" for one in runners),
        "door: {host: 127.0.0.1, port: 8000}",
    ]
    return {FLEET_FILE: "\n".join(lines) + "\n"}


def _device(runner: Runner) -> str:
    """A device; where devices.yaml gives no address, the name of the device is taken for that of its machine."""
    given = {"resource": f"device_{runner.device}"}
    if not runner.address:
        given["address"] = f"{runner.device}:{runner.port}"
    return "{" + ", ".join(f"{key}: {json.dumps(value)}" for key, value in given.items()) + "}"


def ray_steps(runners: Sequence[Runner], build: str, folder: str) -> list[str]:
    """The commands that make the cluster and start the fleet; HEAD is this machine's address.

    `build` is its path as the folder of the files has it.
    """
    steps = ["ray start --head --port=6379"]
    for one in runners:
        resources = json.dumps({f"device_{one.device}": 1})
        start = f"ray start --address=HEAD:6379 --resources='\\''{resources}'\\''"
        steps += [
            f"ssh root@{one.device} mkdir -p {folder}",
            f"scp -rp {quote(f'{build}/devices/{one.device}')} root@{one.device}:{folder}/",
            f"ssh root@{one.device} '{start}'",
        ]
    return [*steps, f"partc fleet up {FLEET_FILE}"]
