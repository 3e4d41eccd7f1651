"""Compiling: time and its parts, memory, the size of the libraries, and the start of what was made.

    python -m tests.bench.compiling --folder /tmp/speed [--models 110M] [--formats int4] [--targets tvm] [--devices 1,3]

Every build is made anew by a process of its own, all of `partc compile` but for its report. The clock starts when the
packages that it takes have been imported and the import of the model lies in the cache. Checkpoints are those of
`tests.bench.speed` where the folder is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.bench.llamas import SHAPES
from tests.bench.speed.make import Bundle, make_random
from tests.bench.speed.places import DEVICES, FORMATS, Cell
from tests.bench.uncut import Uncut

AIMS_S = {"110M": 20.0, "1.1B": 30.0}
"""By the wall, on two cores."""
LIBRARY_BYTES = 1_000_000
"""The aim for one library."""
PACKAGES = {"tvm": ("tvm", "tvm.relax"), "ort": ("onnx", "onnxruntime")}
"""Target → what it imports."""
LIBRARY = "library.so"


@dataclass(frozen=True)
class Compiled:
    """The figures of one build."""

    model: str
    kind: str
    target: str
    devices: int
    wall_s: float
    """From the kept import to the build."""
    plan_s: float
    """Of it, reading the import and everything up to the plan."""
    weights_s: float
    """Of it, streaming weights, while other threads compile; quantising and packing are a part of that."""
    cpu_s: float
    """Processor time of all its processes and threads."""
    peak_bytes: int
    library_bytes: int
    """The largest of its libraries; 0 without any."""
    load: float
    """Of the machine when it ended, itself included."""
    first_token_s: float | None
    """From nothing to a token, in a new process; None where the model is cut."""
    resident_bytes: int | None
    private_bytes: int | None

    @property
    def line(self) -> str:
        """All of it, for people."""
        late = "" if self.wall_s <= AIMS_S[self.model] else f", more than {AIMS_S[self.model]:.0f} s"
        large = "" if self.library_bytes <= LIBRARY_BYTES else f", more than {LIBRARY_BYTES / 1e6:.0f} MB"
        start = ""
        if self.first_token_s is not None and self.resident_bytes and self.private_bytes:
            start = (
                f"; first token after {self.first_token_s:.2f} s, resident {self.resident_bytes / 1e6:.0f} MB"
                f" of which {self.private_bytes / 1e6:.0f} MB private"
            )
        return (
            f"{self.model} {self.kind} on {self.target}, {self.devices} device{'s' if self.devices > 1 else ''}:"
            f" {self.wall_s:.1f} s{late} (plan {self.plan_s:.1f}, weights {self.weights_s:.1f}; {self.cpu_s:.1f} s of"
            f" a core, load {self.load:.1f}), peak {self.peak_bytes / 1e6:.0f} MB,"
            f" library {self.library_bytes / 1e3:.0f} kB{large}{start}"
        )


def main() -> None:
    """Compile everything that was asked for, print a line each."""
    parser = argparse.ArgumentParser(description="What compiling takes.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--targets", default="tvm,ort")
    parser.add_argument("--devices", default="1,3")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--step", choices=("import", "build", "start"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        steps = {"import": import_model, "build": build, "start": start}
        print(json.dumps(steps[options.step](options.folder)))
        return
    for model in options.models.split(","):
        for kind in options.formats.split(","):
            for target in options.targets.split(","):
                for devices in map(int, options.devices.split(",")):
                    cell = Cell((options.folder / model).resolve(), kind, 1)
                    found = compiled(cell, Bundle(target, devices))
                    print(json.dumps(asdict(found)) if options.json else found.line, flush=True)


def compiled(cell: Cell, files: Bundle) -> Compiled:
    """The figures of one build, which lies in a folder of its own and is removed."""
    make_random(cell.place)
    out = cell.place / "compiled" / f"{cell.kind}-{files.target}-{files.devices}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "model.yaml").write_text(files.model_yaml(cell))
    (out / "devices.yaml").write_text(files.devices_yaml(cell))
    _in_process("import", out)
    took = _in_process("build", out)
    libraries = [path.stat().st_size for path in out.glob(f"build/devices/*/{LIBRARY}")]
    nothing = {"first_token_s": None, "resident_bytes": None, "private_bytes": None}
    began = _in_process("start", out) if files.devices == 1 else nothing
    shutil.rmtree(out)
    return Compiled(
        cell.place.name, cell.kind, files.target, files.devices, **took, **began,
        library_bytes=max(libraries, default=0),
    )  # fmt: skip


def _in_process(step: str, place: Path) -> dict[str, Any]:
    """The figures of one step, taken in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.compiling", "--folder", str(place), "--step", step]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def import_model(place: Path) -> dict[str, Any]:
    """Import the model, which then lies in the cache."""
    from partc.cli.load import load_model

    load_model(str(place / "model.yaml"))
    return {}


def build(place: Path) -> dict[str, Any]:
    """Compile, after everything has been imported."""
    import importlib

    from partc.cli.load import load_model
    from partc.config.devices import load_devices
    from partc.pipeline.default import PLANNING, default_pipeline
    from partc.pipeline.manager import run_passes
    from targets import weights
    from targets.ort import target as ort
    from targets.tvm import target as tvm

    devices = place / "devices.yaml"
    names = {device.target for device in load_devices(devices).devices.values()}
    for package in (package for name in names for package in PACKAGES[name]):
        importlib.import_module(package)
    write, spent = weights.write_weights, 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal spent
        started = time.perf_counter()
        places = write(*arguments)
        spent += time.perf_counter() - started
        return places

    began, used = time.perf_counter(), time.process_time()
    module = load_model(str(place / "model.yaml"))
    steps = default_pipeline(devices, "optimal", "eq1+frontier", place / "build")
    planning = len(default_pipeline(devices, "optimal", "eq1+frontier", place / "build", PLANNING))
    run_passes(module, steps[:planning])
    planned = time.perf_counter()
    with patch.object(tvm, "write_weights", timed), patch.object(ort, "write_weights", timed):
        run_passes(module, steps[planning:])
    ended, linking = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": ended - began,
        "plan_s": planned - began,
        "weights_s": spent,
        "cpu_s": time.process_time() - used + linking.ru_utime + linking.ru_stime,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "load": os.getloadavg()[0],
    }


def start(place: Path) -> dict[str, float]:
    """From nothing to the first token, and what a process holds then."""
    began = time.perf_counter()
    model = Uncut(place / "build", DEVICES[0])  # held, or its memory would be gone before it is looked at
    model.step(1, 0)
    took = time.perf_counter() - began
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    held = {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}
    return {"first_token_s": took, "resident_bytes": held["VmRSS"], "private_bytes": held["RssAnon"]}


if __name__ == "__main__":
    main()
