"""Memory that the runners of a ring hold, while it is the only one."""

from __future__ import annotations

import json
from pathlib import Path

from partc.runtime.client.launch import launch_local
from tests.bench.ring.requests import CONTEXT, PROMPT, ids, submit

TOKENS = 24
Sizes = dict[str, float]


def memory_alone(bundle: Path) -> dict[str, Sizes]:
    """Device → bytes; after a long prompt and two requests at once."""
    with launch_local(bundle) as ring, ring.client() as client:
        started = {name: _status(pid)["VmHWM"] for name, pid in ring.pids.items()}
        for request in [submit(client, CONTEXT, TOKENS, seed) for seed in range(2)]:
            request.result()
        client.generate(ids(PROMPT, 0), 1)
        return {name: _memory(bundle, name, pid, started[name]) for name, pid in ring.pids.items()}


def _memory(bundle: Path, device: str, pid: int, started: float) -> Sizes:
    """Bytes that a runner holds, at most held while it started, and should hold: weights and caches of its share."""
    stated = json.loads((bundle / "devices" / device / "build.json").read_text())["memory"]
    held = _status(pid)
    return {
        "share": stated["weights_bytes"] + stated["state_bytes"],
        "start_peak": started,
        "resident": held["VmRSS"],
        "anonymous": held["RssAnon"],
        "files": held["RssFile"],
    }


def _status(pid: int) -> Sizes:
    """The sizes of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.endswith("kB"))
    return {name: float(value.split()[0]) * 1024 for name, value in pairs}
