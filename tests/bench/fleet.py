"""A fleet of two rings on three local nodes of Ray under load: a node is killed and comes back, a rolling update.

    python -m tests.bench.fleet BUILD OTHER [--clients 4] [--tokens 40] [--seconds 20]

Both rings run BUILD; the update brings OTHER, another build of the same model. Clients ask for one answer after the
other by HTTP. Printed as JSON for each phase: answers, failures, seconds of an answer (median, longest), how many took
more than twice the median of the quiet phase, and what was waited for. Memory is resident, by node, of all processes
of the node and of its actors.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from partc.cluster.actors import Fleet
from partc.cluster.demo import LocalCluster, Node, local_cluster, write_demo
from partc.config.fleet import FleetFile, load_fleet

_GRACE_S = 60.0


def main() -> None:
    """Start, load, kill, update; print JSON."""
    parser = argparse.ArgumentParser(description="A fleet under load.")
    parser.add_argument("build", type=Path)
    parser.add_argument("other", type=Path, help="another build of the model")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load before and after each event")
    options = parser.parse_args()
    print(
        json.dumps(
            measure(options.build, options.other, options.clients, options.tokens, options.seconds), indent=1
        )
    )


def measure(build: Path, other: Path, clients: int, tokens: int, load_s: float) -> dict[str, Any]:
    """The figures of all phases."""
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as scratch,
        running(Path(scratch), build) as (cluster, fleet, path),
    ):
        url = fleet.up(load_fleet(path), _GRACE_S, _note)
        load = Load(url, tokens, clients)
        with load.going():
            found["quiet"] = load.phase(lambda: time.sleep(load_s))
            usual_s = found["quiet"]["median_s"]
            victim = cluster.nodes[1]
            found["node killed"] = load.phase(lambda: _kill(victim, load_s), usual_s)
            found["node back"] = load.phase(lambda: _bring_back(victim, fleet, "ring1"), usual_s)
            changed = _with_build(path, other)
            found["rolling update"] = load.phase(lambda: fleet.up(changed, _GRACE_S, _note), usual_s)
            found["after it"] = load.phase(lambda: time.sleep(load_s), usual_s)
        found["memory_mib"] = {node.name: _memory_mib(node) for node in cluster.nodes}
        fleet.down(_note)
    return found


@contextmanager
def running(scratch: Path, build: Path) -> Iterator[tuple[LocalCluster, Fleet, Path]]:
    """A head and two nodes, and fleet.yaml for two rings of a build."""
    path = write_demo(scratch, [build, build], 0)
    rings = load_fleet(path).rings.values()
    with local_cluster([[place.resource for place in ring.devices.values()] for ring in rings]) as cluster:
        fleet = Fleet(cluster.address, scratch)
        try:
            yield cluster, fleet, path
        finally:
            fleet.close()


class Load:
    """Clients that ask for one answer after the other."""

    def __init__(self, url: str, tokens: int, clients: int) -> None:
        """Nothing is asked yet."""
        self._url, self._tokens, self._clients = url, tokens, clients
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._took: list[float] = []
        self._failed: list[str] = []
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
            self._model = json.load(answer)["data"][0]["id"]

    @contextmanager
    def going(self) -> Iterator[None]:
        """Ask within the block."""
        threads = [threading.Thread(target=self._ask_on, args=(index,)) for index in range(self._clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ending.set()
            for thread in threads:
                thread.join()

    def phase(self, act: Callable[[], Any], usual_s: float | None = None) -> dict[str, Any]:
        """What the clients saw from now until `act` is over."""
        with self._lock:
            self._took, self._failed = [], []
        begun = time.monotonic()
        told = act()
        with self._lock:
            took, failed = self._took, self._failed
        median_s = statistics.median(took) if took else None
        return {
            "seconds": round(time.monotonic() - begun, 1),
            "answers": len(took),
            "failed": len(failed),
            "why": sorted(set(failed)),
            "median_s": median_s and round(median_s, 3),
            "longest_s": round(max(took, default=0.0), 3),
            "slow": None if usual_s is None else sum(each > 2 * usual_s for each in took),
            **(told if isinstance(told, dict) else {}),
        }

    def _ask_on(self, index: int) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            body = {
                "model": self._model,
                "prompt": f"Once upon a time {index}",
                "max_tokens": self._tokens,
                "seed": number,
            }
            request = urllib.request.Request(
                f"{self._url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            begun = time.monotonic()
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    answer.read()
            except (urllib.error.URLError, OSError) as error:
                with self._lock:
                    self._failed.append(str(error))
                time.sleep(0.1)
                continue
            with self._lock:
                self._took.append(time.monotonic() - begun)


def _kill(node: Node, load_s: float) -> None:
    node.end(signal.SIGKILL)
    time.sleep(load_s)


def _bring_back(node: Node, fleet: Fleet, ring: str) -> dict[str, float]:
    """Start a node again, and wait until its ring stands."""
    node.start()
    started = time.monotonic()
    while not any(one["name"] == ring and one["state"] == "ready" for one in fleet.state()["door"]["rings"]):
        time.sleep(0.2)
    return {"ring_stands_after_s": round(time.monotonic() - started, 1)}


def _with_build(path: Path, build: Path) -> FleetFile:
    """The fleet with another build, at the same addresses."""
    told = yaml.safe_load(path.read_text())
    for ring in told["rings"].values():
        ring["build"] = str(build.resolve())
    path.write_text(yaml.safe_dump(told, sort_keys=False))
    return load_fleet(path)


def _memory_mib(node: Node) -> int:
    """Resident memory of a node: its group, and the actors whose raylet is in it, with their runners."""
    processes = {int(path.name): path for path in Path("/proc").iterdir() if path.name.isdigit()}
    own = {pid for pid in processes if _group(pid) == node.group}
    while more := {pid for pid in processes if pid not in own and _parent(processes[pid]) in own}:
        own |= more
    return sum(_resident(processes[pid]) for pid in own) >> 20


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _resident(process: Path) -> int:
    try:
        return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
