"""A plan's memory holds: real runners, the largest requests that the plan allows, one after another."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from partc.cli.main import run
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing, launch_local
from tests.living.memory import LEAST, allowed, held, idle

pytestmark = [
    pytest.mark.hf,
    pytest.mark.ort,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
MB = 1e6
SMALL = {
    "hidden_size": 512, "num_hidden_layers": 4, "intermediate_size": 1376, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 8000, "max_position_embeddings": 512,
}  # fmt: skip
LARGE = {**SMALL, "num_hidden_layers": 8, "vocab_size": 32000, "max_position_embeddings": 1024}
NEW = 4


def build(folder: Path, shape: Mapping[str, int], dtype: str = "float32", quantize: str = "none") -> Path:
    """Two devices with one run of sub-modules each; two requests of two sequences.

    Each run of a device has a session with an arena of its own, which plans do not count.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder / "checkpoint")
    (folder / "model.yaml").write_text(
        f"model: checkpoint\ntask: text-generation\ndtype: {dtype}\nquantize: {quantize}\nmax_requests: 2\n"
        f"max_batch: 2\nmax_sequence: {shape['max_position_embeddings']}\n"
    )
    figures = "{target: ort, threads: 1, flops: 60 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 2 GB}"
    (folder / "devices.yaml").write_text(
        f"source: a\nobjective: throughput\nreturns: 0\ndevices:\n  a: {figures}\n  b: {figures}\n"
        "links:\n  default: {bandwidth: 4 Gbit/s, latency: 0.2 ms}\n"
    )
    arguments = ["compile", str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run([*arguments, "-o", str(folder / "build")]) == 0
    return folder / "build"


def planned(bundle: Path) -> dict[str, float]:
    """Device → bytes; devices.yaml says nothing of what a runner needs by itself."""
    plan = json.loads((bundle / "plan.json").read_text())
    return {use["device"]: use["needed_bytes"] for use in plan["predicted"]["memory"]}


def largest_held(bundle: Path, prompt: int, rounds: int) -> list[dict[str, float]]:
    """Device → the most bytes of each round of two requests, looked at all the time."""
    with (
        launch_local(bundle, floor_s=300.0) as ring,
        ring.client() as client,
        ThreadPoolExecutor(1) as worker,
    ):
        return [worker_round(worker, ring, client, bundle, prompt - 37 * number) for number in range(rounds)]


def worker_round(
    worker: ThreadPoolExecutor, ring: LocalRing, client: Client, bundle: Path, prompt: int
) -> dict[str, float]:
    """One round; the processes are read by this thread while the worker waits for the answers."""
    done = worker.submit(answer, client, prompt)
    most = dict.fromkeys(ring.pids, 0.0)
    while not done.done():
        most = {name: max(size, held(ring.pids[name], bundle)) for name, size in most.items()}
        time.sleep(0.02)
    done.result()
    return most


def answer(client: Client, prompt: int) -> None:
    requests = [
        client.submit(
            [ids(prompt, 2 * number + row) for row in range(2)], max_new_tokens=NEW, ignore_eos=True
        )
        for number in range(2)
    ]
    for request in requests:
        request.result()


def ids(count: int, seed: int) -> Sequence[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 8000, count)]


def check(tmp_path: Path, bundle: Path, prompt: int, rounds: int, least: float = LEAST) -> None:
    """Hold every round against the plan: 5 % more is allowed, or `least` bytes."""
    base, plan = idle(), planned(bundle)
    for most in largest_held(bundle, prompt, rounds):
        for device, size in most.items():
            assert size - base <= allowed(plan[device], least), (
                f"{device}: {size - base:.3g} bytes held, {plan[device]:.3g} planned"
            )


@pytest.mark.in_turns(3)
def test_the_memory_of_a_plan_holds(tmp_path: Path) -> None:
    bundle = build(tmp_path, SMALL)
    # Messages under way, large pages and the arena's notes weigh more in a small model.
    check(tmp_path, bundle, prompt=512 - NEW, rounds=3, least=20 * MB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "quantize"),
    [("float32", "none"), ("float16", "none"), ("float32", "int8"), ("float32", "int4")],
)
def test_the_memory_of_a_large_plan_holds(tmp_path: Path, dtype: str, quantize: str) -> None:
    """230 MB of weights and 134 MB of caches in float32."""
    bundle = build(tmp_path, LARGE, dtype, quantize)
    check(tmp_path, bundle, prompt=1024 - NEW, rounds=4)
