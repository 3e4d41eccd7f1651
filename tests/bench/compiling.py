"""Compiling for one device: time, memory, the size of the library, and the start of what was made.

    python -m tests.bench.compiling --folder /tmp/speed [--models 110M] [--formats int4] [--targets tvm] [--json]

Each model is compiled twice, with all of `partc compile`, and the second time counts: the import of the model is kept
then, everything else is made anew. Checkpoints are those of `tests.bench.speed` where the folder is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.llamas import SHAPES
from tests.bench.speed.make import Bundle, make_random
from tests.bench.speed.places import DEVICES, FORMATS, Cell
from tests.bench.uncut import Uncut

AIMS_S = {"110M": 20.0, "1.1B": 30.0}
"""By the wall, on two cores."""
LIBRARY_BYTES = 1_000_000
"""The aim for one library."""
LIBRARY = "library.so"


@dataclass(frozen=True)
class Compiled:
    """The figures of one build."""

    model: str
    kind: str
    target: str
    wall_s: float
    cpu_s: float
    """Processor time of all its processes and threads."""
    peak_bytes: int
    library_bytes: int
    load: float
    """Of the machine when it ended, itself included."""
    first_token_s: float
    """From nothing to a token, in a new process."""
    resident_bytes: int
    private_bytes: int

    @property
    def line(self) -> str:
        """All of it, for people."""
        late = "" if self.wall_s <= AIMS_S[self.model] else f", more than {AIMS_S[self.model]:.0f} s"
        large = "" if self.library_bytes <= LIBRARY_BYTES else f", more than {LIBRARY_BYTES / 1e6:.0f} MB"
        return (
            f"{self.model} {self.kind} on {self.target}: {self.wall_s:.1f} s{late} ({self.cpu_s:.1f} s of a core, load"
            f" {self.load:.1f}), peak {self.peak_bytes / 1e6:.0f} MB, library {self.library_bytes / 1e3:.0f} kB{large};"
            f" first token after {self.first_token_s:.2f} s, resident {self.resident_bytes / 1e6:.0f} MB of which"
            f" {self.private_bytes / 1e6:.0f} MB private"
        )


def main() -> None:
    """Compile everything that was asked for, print a line each."""
    parser = argparse.ArgumentParser(description="What compiling takes.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--targets", default="tvm,ort")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        print(json.dumps(start(options.start)))
        return
    for model in options.models.split(","):
        for kind in options.formats.split(","):
            for target in options.targets.split(","):
                found = compiled(Cell((options.folder / model).resolve(), kind, 1), target)
                print(json.dumps(asdict(found)) if options.json else found.line, flush=True)


def compiled(cell: Cell, target: str) -> Compiled:
    """The figures of one build, which lies in a folder of its own."""
    files = Bundle(target)
    make_random(cell.place)
    out = cell.place / "compiled"
    out.mkdir(exist_ok=True)
    model, devices = out / "model.yaml", out / "devices.yaml"
    model.write_text(files.model_yaml(cell))
    devices.write_text(files.devices_yaml(cell))
    build = out / "build"
    command = [
        sys.executable,
        "-m",
        "partc.cli",
        "compile",
        str(model),
        "--target",
        str(devices),
        "-o",
        str(build),
    ]
    for _ in range(2):
        shutil.rmtree(build, ignore_errors=True)
        took = _run(command)
    library = build / "devices" / DEVICES[0] / LIBRARY
    size = library.stat().st_size if library.exists() else 0
    started = [sys.executable, "-m", "tests.bench.compiling", "--folder", "-", "--start", str(build)]
    done = subprocess.run(started, check=True, stdout=subprocess.PIPE)
    return Compiled(cell.place.name, cell.kind, target, **took, library_bytes=size, **json.loads(done.stdout))


def _run(command: list[str]) -> dict[str, Any]:
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
        "load": os.getloadavg()[0],
    }


def start(build: Path) -> dict[str, float]:
    """From nothing to the first token, and what a process holds then."""
    began = time.perf_counter()
    model = Uncut(build, DEVICES[0])  # held, or its memory would be gone before it is looked at
    model.step(1, 0)
    took = time.perf_counter() - began
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    held = {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}
    return {"first_token_s": took, "resident_bytes": held["VmRSS"], "private_bytes": held["RssAnon"]}


if __name__ == "__main__":
    main()
