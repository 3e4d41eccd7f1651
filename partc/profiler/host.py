"""`profile: host`: the figures of this machine, measured once and kept in the user's cache, never in a repository."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import yaml

from partc.atomic import write_file
from partc.config.devices import read_devices
from partc.config.profiles import host_file
from partc.config.yamlfile import parse_yaml
from partc.pipeline.contract import Progress
from partc.profiler.measurement import DeviceResult, measure, prepare
from partc.runtime.measure.machine import machine_facts
from partc.scratch import scratch_folder

_TEMPLATE = """\
source: host
devices:
  host: {{target: {target}, arch: {arch}, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GB}}
"""


def profile_host(target: str, quick: bool, progress: Progress) -> tuple[Path, DeviceResult]:
    """Measure this machine and write its profile; where that lies, and what was found."""
    arch = machine_facts()["arch"]
    devices = read_devices(parse_yaml(_TEMPLATE.format(target=target, arch=arch), "host"))
    with scratch_folder("profile") as scratch:
        prepare(scratch, devices, None, quick, progress)
        result = measure(scratch, devices, connect=False, insecure=False, quick=quick, progress=progress)
    found = result.devices["host"]
    path = host_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, _profile_yaml(found, str(arch)))
    return path, found


def _profile_yaml(found: DeviceResult, arch: str) -> str:
    source = f"measured by partc profile --host on {datetime.now(UTC):%Y-%m-%d}, {found.facts['cpu']}"
    figures = found.figures
    data = {
        "title": "this machine",
        "arch": arch,
        "provider": "cpu",
        "flops": {"value": f"{figures.flops_per_s / 1e9:.4g} GFLOP/s", "source": source},
        "memory_bandwidth": {
            "value": f"{figures.memory_bandwidth_bytes_per_s / 1e9:.4g} GB/s", "source": source,
        },
        "memory": {"value": f"{found.facts['memory_bytes']} B", "source": f"{source}: free then"},
    }  # fmt: skip
    return yaml.safe_dump(data, sort_keys=False)
