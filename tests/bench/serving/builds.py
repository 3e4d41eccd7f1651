"""The builds that are served: a Llama of 110M random weights in int4, on one device and on a ring of three."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.bench.speed.make import make_random
from tests.bench.speed.places import checkpoint

MODEL = "110M"
SEQUENCE = 640
CORES = 2
RINGS = {"one device": (("a",), CORES), "ring of three": (("a", "b", "c"), 1)}
"""Ring → the names of its devices, and the threads of each."""


def build(folder: Path, ring: str, slots: int) -> Path:
    """The build of a ring, whose steps at most `slots` requests share; compiled where it is missing."""
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
    names, threads = RINGS[ring]
    figures = f"target: tvm, threads: {threads}, flops: 60 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 32 GB"
    lines = [f"  {name}: {{{figures}}}" for name in names]
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
