"""What cutting costs: rings of 2 and 3 local processes of one thread each beside the uncut model on one thread.

    python -m tests.bench.ring --folder /tmp/ring [--model 110M] [--checkpoint DIR] [--quantize int4] [--json]

Every round starts each ring anew and measures it alone, so that one lies in memory at a time and what else runs on the
machine hits all; figures are medians over the rounds. Links are encrypted. Measured are

- decode at context 128, one request: seconds a token by the wall, and CPU seconds of all runners together;
- per hop, microseconds from the sending device's `send` to the receiving device's `run`, and what a token takes beyond
  computing, by hop;
- two requests in flight: tokens per second, over those of one;
- a prompt of 512 tokens: its speed over that of the uncut model. How the work of a prompt and that of a token are in
  balance are two things (the head is read for every token), so `prompt` is a ring of two planned for long prompts;
- resident memory of the runners, at the peak of starting and at the end, beside weights and caches of their shares.

On a machine with fewer idle cores than processes, only the CPU times mean something. Builds stay in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from partc.runtime.client import Client, Request
from partc.runtime.launch import LocalRing, launch_local
from partc.runtime.results import Result, Tokens
from tests.bench.llamas import SHAPES, make_checkpoint

CONTEXT, PROMPT, TOKENS = 128, 512, 48
RINGS = {"uncut": ("a", 64, 128), "two": ("ab", 64, 128), "three": ("abc", 64, 128), "prompt": ("ab", 512, 8)}
"""Ring → the names of its devices, and the prompt and the new tokens that it is planned for."""


@dataclass
class Round:
    """What one ring did in one round."""

    decode_s: float = 0.0
    """Seconds a token of one request."""
    cpu_s: float = 0.0
    """CPU seconds a token, of all runners."""
    hop_us: list[float] = field(default_factory=list)
    """From `send` to `run`, of each hop of each token that a device took from another."""
    beyond_us: float = 0.0
    """What a token takes beyond computing, by hop; without a hop, by token."""
    pair_tokens_per_s: float = 0.0
    prompt_s: float = 0.0
    memory: dict[str, dict[str, float]] = field(default_factory=dict)
    """Device → bytes."""


def main() -> None:
    """Make what is missing, measure, print."""
    parser = argparse.ArgumentParser(description="Rings of local processes beside the uncut model.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", choices=SHAPES, default="110M")
    parser.add_argument("--checkpoint", type=Path, help="of that shape; made where there is none")
    parser.add_argument("--quantize", choices=("none", "int8", "int4"), default="none")
    parser.add_argument("--rings", default=",".join(RINGS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.rings.split(",")
    checkpoint = (options.checkpoint or options.folder / options.model / "checkpoint").resolve()
    if not (checkpoint / "model.safetensors").exists():
        checkpoint.mkdir(parents=True)
        make_checkpoint(checkpoint.parent, options.model)
    place = options.folder / options.model / options.quantize
    builds = {name: build(place, name, checkpoint, options.quantize) for name in names}
    rounds: dict[str, list[Round]] = {name: [] for name in names}
    loads = []
    for _ in range(options.rounds):
        for name in names:
            rounds[name].append(measure(builds[name]))
            loads.append(os.getloadavg()[0])
    report = summary(rounds, {"model": options.model, "quantize": options.quantize, "load": max(loads)})
    print(json.dumps(report, indent=1) if options.json else table(report))


def build(folder: Path, name: str, checkpoint: Path, quantize: str) -> Path:
    """Compile for a ring, for equal devices and with the load in balance; the build."""
    bundle = folder / name
    if bundle.exists():
        return bundle
    folder.mkdir(parents=True, exist_ok=True)
    model, devices = folder / f"{name}.model.yaml", folder / f"{name}.yaml"
    members, prompt, new = RINGS[name]
    model.write_text(
        f"model: {checkpoint}\ntask: text-generation\ndtype: float32\nquantize: {quantize}\nmax_requests: 2\n"
        f"max_sequence: 640\nworkload: {{prompt: {prompt}, generate: {new}}}\n"
    )
    figures = "target: ort, threads: 1, flops: 60 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 32 GB"
    lines = [f"  {device}: {{{figures}}}" for device in members]
    devices.write_text(
        "\n".join(("source: a", "objective: throughput", "devices:", *lines,
                   "links:", "  default: {bandwidth: 4 Gbit/s, latency: 0.2 ms}", ""))
    )  # fmt: skip
    command = [sys.executable, "-m", "partc.cli.main", "compile", str(model), "--target", str(devices)]
    subprocess.run([*command, "-o", str(bundle)], check=True, stdout=subprocess.DEVNULL)
    return bundle


def measure(bundle: Path) -> Round:
    """Start a ring, measure it, end it."""
    found = Round()
    with launch_local(bundle) as ring, ring.client() as client:
        started = {name: status(pid)["VmHWM"] for name, pid in ring.pids.items()}
        _submit(client, CONTEXT, 8, 0).result()
        _one(client, ring, found)
        pair = [_submit(client, CONTEXT - TOKENS // 2, TOKENS, seed) for seed in range(2)]
        found.pair_tokens_per_s = sum(1 / _pace(request.result(), client) for request in pair)
        client.generate(_ids(PROMPT, 0), 1)
        prompts = [client.generate(_ids(PROMPT, seed), 1).elapsed_s for seed in range(1, 4)]
        found.prompt_s = statistics.median(prompts)
        found.memory = {name: memory(bundle, name, pid, started[name]) for name, pid in ring.pids.items()}
    return found


def _one(client: Client, ring: LocalRing, found: Round) -> None:
    marks: dict[int, float] = {}

    def mark(tokens: Tokens) -> None:
        if tokens.step in (1, TOKENS - 1):
            marks[tokens.step] = _cpu_s(ring)

    result = _submit(client, CONTEXT - TOKENS // 2, TOKENS, 0, mark).result()
    found.cpu_s = (marks[TOKENS - 1] - marks[1]) / (TOKENS - 2)
    found.decode_s = _pace(result, client)
    found.hop_us, found.beyond_us = hops(result, client.manifest.ring)


def hops(result: Result, ring: Sequence[str]) -> tuple[list[float], float]:
    """Microseconds of each hop, and of a token beyond computing, by hop.

    All devices read one clock. A step begins on a device when its message has come, and is sent on when it is computed.
    """
    starts = {name: result.timings[name].column("started_s")[2:] for name in ring}
    busy = {
        name: result.timings[name].column("compute_s")[2:] + result.timings[name].column("queue_s")[2:]
        for name in ring
    }
    there = [starts[b] - starts[a] - busy[a] for a, b in pairwise(ring)]
    whole = np.diff(starts[ring[0]])
    beyond = whole - sum(taken[:-1] for taken in busy.values())
    return [float(us) for hop in there for us in hop * 1e6], float(np.median(beyond)) * 1e6 / len(ring)


def _submit(
    client: Client, prompt: int, tokens: int, seed: int, on_token: Callable[[Tokens], None] | None = None
) -> Request:
    return client.submit(_ids(prompt, seed), max_new_tokens=tokens, ignore_eos=True, on_token=on_token)


def _ids(length: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 32000, length)]


def _pace(result: Result, client: Client) -> float:
    """The median time from one token to the next, seconds."""
    starts = result.timings[client.manifest.source].column("started_s")
    return float(np.median(np.diff(starts[1:])))


def _cpu_s(ring: LocalRing) -> float:
    """CPU time of all runners so far, seconds."""
    files = [file for pid in ring.pids.values() for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def memory(bundle: Path, device: str, pid: int, started: float) -> dict[str, float]:
    """Bytes that a runner holds, at most held while it started, and should hold: weights and caches of its share."""
    stated = json.loads((bundle / "devices" / device / "manifest.json").read_text())["memory"]
    held = status(pid)
    return {
        "share": stated["weights_bytes"] + stated["state_bytes"],
        "start_peak": started,
        "resident": held["VmRSS"],
        "anonymous": held["RssAnon"],
        "files": held["RssFile"],
    }


def status(pid: int) -> dict[str, float]:
    """The sizes of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.endswith("kB"))
    return {name: float(value.split()[0]) * 1024 for name, value in pairs}


def summary(rounds: Mapping[str, Sequence[Round]], about: Mapping[str, Any]) -> dict[str, Any]:
    """Medians over the rounds, and ratios to the first ring, which is the uncut model."""
    found = {name: _medians(done) for name, done in rounds.items()}
    first = next(iter(found.values()))
    for figures in found.values():
        figures["decode_speed"] = first["decode_s"] / figures["decode_s"]
        figures["cpu_ratio"] = first["cpu_s"] / figures["cpu_s"]
        figures["pair_speed"] = figures["pair_tokens_per_s"] * figures["decode_s"]
        figures["prompt_speed"] = first["prompt_s"] / figures["prompt_s"]
    return {**about, "cores": os.cpu_count(), "rings": found}


def _medians(rounds: Sequence[Round]) -> dict[str, Any]:
    def middle(pick: Callable[[Round], float]) -> float:
        return statistics.median(map(pick, rounds))

    hops = [us for done in rounds for us in done.hop_us]
    return {
        "decode_s": middle(lambda done: done.decode_s),
        "decode_spread": [min(done.decode_s for done in rounds), max(done.decode_s for done in rounds)],
        "cpu_s": middle(lambda done: done.cpu_s),
        "hop_us": statistics.median(hops) if hops else None,
        "beyond_us": middle(lambda done: done.beyond_us),
        "pair_tokens_per_s": middle(lambda done: done.pair_tokens_per_s),
        "prompt_s": middle(lambda done: done.prompt_s),
        "memory": rounds[-1].memory,
    }


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"{report['model']}, {report['quantize']}, {report['cores']} cores, load up to {report['load']:.1f}"
    ]
    for name, ring in report["rings"].items():
        hop = "" if ring["hop_us"] is None else f"; a hop {ring['hop_us']:.0f} us"
        lines += [
            f"  {name}",
            f"    decode {ring['decode_s'] * 1e3:.2f} ms ({ring['decode_speed']:.2f}x), CPU"
            f" {ring['cpu_s'] * 1e3:.2f} ms ({ring['cpu_ratio']:.2f}x){hop};"
            f" {ring['beyond_us']:.0f} us a hop beyond computing",
            f"    two requests {ring['pair_tokens_per_s']:.1f} tokens/s ({ring['pair_speed']:.2f}x of one);"
            f" prompt of {PROMPT} in {ring['prompt_s'] * 1e3:.0f} ms ({ring['prompt_speed']:.2f}x)",
        ]
        lines += [f"    {_held(device, sizes)}" for device, sizes in ring["memory"].items()]
    return "\n".join(lines)


def _held(device: str, sizes: Mapping[str, float]) -> str:
    share = sizes["share"]
    return (
        f"{device}: {share / 1e6:.0f} MB of weights and caches; resident {sizes['resident'] / 1e6:.0f} MB (anonymous"
        f" {sizes['anonymous'] / 1e6:.0f}), {(sizes['resident'] - 100e6) / share:.2f}x + 100 MB;"
        f" at start {sizes['start_peak'] / 1e6:.0f} MB, {sizes['start_peak'] / share:.2f}x"
    )


if __name__ == "__main__":
    main()
