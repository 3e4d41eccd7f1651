"""A Ray cluster of local nodes, to try a fleet on one machine: a head, and a node for each ring."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from partc.errors import RunError
from partc.format.names import device_folders

_STORE_BYTES = 80 << 20
"""The object store of a node; nothing is kept there, and Ray takes no less."""
_START_S = 120.0
_END_S = 10.0
_FAST = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""A node that is lost is noticed after about 2 s; after some 14 s by default."""


@dataclass
class Node:
    """A node of a local cluster, as processes of this machine."""

    name: str
    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it runs.

        Raises:
            RunError: it does not.
        """
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_FAST},
                start_new_session=True,
            )
        end = time.monotonic() + _START_S
        while b"Ray runtime started" not in self.log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > end:
                last = self.log.read_text(errors="replace").strip().rpartition("\n")[2]
                hint = "ray stop ends what is left over"
                raise RunError(f"Ray's {self.name} did not start: {last}", where=self.name, hint=hint)
            time.sleep(0.1)

    @property
    def group(self) -> int:
        """The process group of the node itself; actors end when it does."""
        assert self.process is not None, "it was started"
        return self.process.pid

    def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End it; by SIGKILL as a machine does that loses its power."""
        if self.process is None:
            return
        for number in (by, signal.SIGKILL):
            try:
                os.killpg(self.group, number)
                self.process.wait(_END_S)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()


@dataclass(frozen=True)
class LocalCluster:
    """Nodes that run."""

    address: str
    """HOST:PORT of the head."""
    nodes: list[Node]
    """The head first."""


@contextmanager
def local_cluster(resources: Sequence[Sequence[str]]) -> Iterator[LocalCluster]:
    """A head, and a node with one of each resource for each entry; they end with the block.

    Raises:
        RunError: a node does not start.
    """
    [port] = free_ports(1)
    cluster = LocalCluster(f"127.0.0.1:{port}", [])
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
        )
        head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
        others = [
            [f"--address={cluster.address}", f"--resources={json.dumps(dict.fromkeys(names, 1))}"]
            for names in resources
        ]
        for index, options in enumerate([head, *others]):
            node = Node(f"node {index}", _command(index, options), folder / f"node-{index}.log")
            stack.callback(node.end)
            node.start()
            cluster.nodes.append(node)
        yield cluster


def _command(index: int, options: Sequence[str]) -> list[str]:
    first = 20000 + 1000 * index
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    command += [
        f"--node-ip-address=127.0.0.{index + 1}",
        "--num-cpus=1",
        f"--object-store-memory={_STORE_BYTES}",
    ]
    return [*command, f"--min-worker-port={first}", f"--max-worker-port={first + 999}", *options]


def write_demo(folder: Path, builds: Sequence[Path], port: int) -> Path:
    """fleet.yaml with a ring for each build, on loopback addresses of their own; its path."""
    rings = {}
    folders = [device_folders(build) for build in builds]
    ports = iter(free_ports(sum(map(len, folders))))
    for index, (build, devices_of_build) in enumerate(zip(builds, folders, strict=True), 1):
        name = ring_name(index)
        devices = {
            device.name: {"resource": f"{name}_{device.name}", "address": f"127.0.0.1:{next(ports)}"}
            for device in devices_of_build
        }
        rings[name] = {"build": str(build.resolve()), "devices": devices}
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump({"rings": rings, "door": {"port": port}}, sort_keys=False))
    return path


def ring_name(index: int) -> str:
    """Name of a ring of the demo, from 1."""
    return f"ring{index}"


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nobody has now: all are held until the last is found."""
    with ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]
