"""The builds that are served: a Llama of 110M random weights in int4, on one device and on a ring of three."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.bench.speed.make import make_random
from tests.bench.speed.places import checkpoint, with_threads

MODEL = "110M"
SEQUENCE = 640
ONE_THREAD = "one device, one thread"
RINGS = {"one device": ("a",), ONE_THREAD: ("a",), "ring of three": ("a", "b", "c")}
"""Ring → the names of its devices."""


def build(folder: Path, ring: str, slots: int, threads: int) -> Path:
    """The build of a ring, whose steps at most `slots` requests share; compiled where it is missing.

    One device has so many threads, those of a ring one each.
    """
    if len(RINGS[ring]) > 1:
        return _compiled(folder, ring, slots)
    return with_threads(_compiled(folder, "one device", slots), 1 if ring == ONE_THREAD else threads)


def _compiled(folder: Path, ring: str, slots: int) -> Path:
    place = folder / MODEL
    out = folder / f"{ring.replace(' ', '-')}-{slots}"
    if out.exists():
        return out
    print(f"making {out}", file=sys.stderr, flush=True)
    make_random(place)
    model, devices = out.with_suffix(".model.yaml"), out.with_suffix(".yaml")
    model.write_text(
        f"model: {checkpoint(place).resolve()}\ntask: text-generation\ndtype: float32\nquantize: int4\n"
        f"max_requests: {slots}\nmax_sequence: {SEQUENCE}\nworkload: {{prompt: 64, generate: 64}}\n"
    )
    figures = "target: tvm, threads: 1, flops: 60 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 32 GB"
    lines = [f"  {name}: {{{figures}}}" for name in RINGS[ring]]
    links = "  default: {bandwidth: 4 Gbit/s, latency: 0.2 ms}"
    devices.write_text(
        "\n".join(("source: a", "objective: throughput", "devices:", *lines, "links:", links, ""))
    )
    command = [
        sys.executable,
        "-m",
        "partc.cli",
        "compile",
        str(model),
        "--target",
        str(devices),
        "-o",
        str(out),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out
