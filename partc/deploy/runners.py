"""The runners of a build, as an operator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from partc.atomic import write_file
from partc.format.names import RUNNER_FILE
from partc.format.role import Role, read_roles

PORT = 5555
"""The port of a device whose address devices.yaml does not give."""
OVERHEAD_BYTES = 60 << 20
"""Memory of a runner besides weights, caches and activations (docs/deployment.md)."""

Files = Mapping[str, str]
"""Path below the output folder → text."""


@dataclass(frozen=True)
class Runner:
    """One device's runner."""

    device: str
    is_source: bool
    in_ring: bool
    """Whether it computes anything as compiled; else it waits for a loss or a move."""
    arch: str
    """The machine as `uname -m` names it: `x86_64`, `aarch64`."""
    is_gpu: bool
    is_native: bool
    """Whether the device's folder holds a native runner, which then needs no Python there."""
    engine: str
    """Kind of its engine: `ort`; or `null`, `plan`, `gpu`, which need no package."""
    address: str
    """HOST:PORT in devices.yaml; empty: it says none."""
    port: int
    needed_bytes: int
    """Memory that the placement as compiled takes, the runner itself included."""
    limit_bytes: int
    """Memory that any placement of the build may take: the plan never gives a device more than its budget."""


def read_runners(build: Path) -> list[Runner]:
    """All devices of a build, by name.

    Raises:
        BundleError: not a build, or a file in it is damaged or of another build.
    """
    roles = read_roles(build)
    return [_runner(role, (build / "devices" / name / RUNNER_FILE).is_file()) for name, role in roles.items()]


def _runner(role: Role, is_native: bool) -> Runner:
    memory = role.build.memory
    needed = memory.weights_bytes + memory.state_bytes + (memory.peak_bytes or 0) + memory.mirror_bytes
    address = role.addresses.get(role.device) or ""
    port = address.rpartition(":")[2]
    library = role.engine.library
    return Runner(
        device=role.device,
        is_source=role.is_source,
        in_ring=role.device in role.ring,
        arch="" if library is None else library.platform.partition("-")[0],
        is_gpu=role.engine.provider not in ("cpu", "xnnpack"),
        is_native=is_native,
        engine=role.engine.kind,
        address=address,
        port=int(port) if port.isdecimal() else PORT,
        needed_bytes=needed + OVERHEAD_BYTES,
        limit_bytes=max(needed, memory.budget_bytes or 0) + OVERHEAD_BYTES,
    )


def write_files(folder: Path, files: Files) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)
