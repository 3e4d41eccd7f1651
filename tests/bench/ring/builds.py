"""The rings that are compared: equal devices, the load in balance."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from partc.format.role import source_role
from partc.runtime.core.source.inputs import prompt_ends
from tests.bench.ring.requests import PROMPT

RINGS = {"uncut": ("a", 64, 128), "two": ("ab", 64, 128), "three": ("abc", 64, 128), "prompt": ("ab", 512, 8)}
"""Ring → the names of its devices, and the prompt and the new tokens that it is planned for."""


def build(folder: Path, name: str, checkpoint: Path, quantize: str, target: str, fresh: bool = False) -> Path:
    """The build of a ring, compiled where it is missing or `fresh` is asked for."""
    bundle = folder / name
    if fresh:
        shutil.rmtree(bundle, ignore_errors=True)
    if bundle.exists():
        return bundle
    folder.mkdir(parents=True, exist_ok=True)
    model, devices = folder / f"{name}.model.yaml", folder / f"{name}.yaml"
    members, prompt, new = RINGS[name]
    model.write_text(
        f"model: {checkpoint}\ntask: text-generation\ndtype: float32\nquantize: {quantize}\nmax_requests: 2\n"
        f"max_sequence: 640\nworkload: {{prompt: {prompt}, generate: {new}}}\n"
    )
    figures = f"target: {target}, threads: 1, flops: 60 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 32 GB"
    lines = [f"  {device}: {{{figures}}}" for device in members]
    devices.write_text(
        "\n".join(("source: a", "objective: throughput", "devices:", *lines,
                   "links:", "  default: {bandwidth: 4 Gbit/s, latency: 0.2 ms}", ""))
    )  # fmt: skip
    command = [sys.executable, "-m", "partc.cli", "compile", str(model), "--target", str(devices)]
    subprocess.run([*command, "-o", str(bundle)], check=True, stdout=subprocess.DEVNULL)
    return bundle


def ideal_speed(bundle: Path) -> float:
    """The speed of a prompt of `PROMPT` tokens over that of one device, at devices and parts of equal work.

    With s devices and p parts, the last device ends after p + s - 1 parts of the work of p × s.
    """
    role = source_role(bundle)
    devices, parts = len(role.ring), len(prompt_ends(PROMPT, 1, role.model))
    return devices * parts / (devices + parts - 1)
