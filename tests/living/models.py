"""Models of the trials, and their builds: rings of 3 or 4 devices on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from partc.runs.records import RUNS
from tests.bench.predictions import partc, run_once

STORYTELLER = Path(__file__).parents[2] / "examples" / "storyteller"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and the requests that are made to it."""

    model: str
    """The text of its model.yaml."""
    layers: int
    vocabulary: int
    prompt: int
    """Tokens of a prompt."""
    tokens: int
    """New tokens of a request."""

    def prompt_ids(self, seed: int) -> list[int]:
        """A random prompt."""
        return [int(token) for token in np.random.default_rng(seed).integers(3, self.vocabulary, self.prompt)]


_GROUPED = """\
model:
  seed: 3
  config: {model_type: llama, hidden_size: 256, num_hidden_layers: 8, num_attention_heads: 8, num_key_value_heads: 2,
           intermediate_size: 512, vocab_size: 2000, max_position_embeddings: 512, tie_word_embeddings: false}
quantize: int4
max_sequence: 320
max_requests: 4
workload: {prompt: 16, generate: 128}
"""
_STORIES = f"""\
model: {STORYTELLER}
task: text-generation
dtype: float32
max_sequence: 256
max_requests: 4
workload: {{prompt: 32, generate: 64}}
"""
_HYBRID = """\
model:
  seed: 4
  config: {model_type: qwen3_next, hidden_size: 64, num_hidden_layers: 6, num_attention_heads: 4, head_dim: 16,
           num_key_value_heads: 2, intermediate_size: 96, vocab_size: 500, max_position_embeddings: 256,
           num_experts: 0, linear_num_value_heads: 4, linear_num_key_heads: 2, linear_key_head_dim: 16,
           linear_value_head_dim: 16,
           layer_types: [linear_attention, full_attention, linear_attention, linear_attention, full_attention,
                         linear_attention]}
max_sequence: 160
max_requests: 4
workload: {prompt: 16, generate: 64}
"""
SUBJECTS = {
    "storyteller": Subject(_STORIES, layers=12, vocabulary=768, prompt=8, tokens=200),
    "grouped": Subject(_GROUPED, layers=8, vocabulary=2000, prompt=16, tokens=200),
    "parts": Subject(_STORIES, layers=12, vocabulary=768, prompt=190, tokens=60),
    "hybrid": Subject(_HYBRID, layers=6, vocabulary=500, prompt=16, tokens=120),
}
"""`grouped`: grouped queries, weights in int4. `parts`: prompts of more tokens than go through the ring in one step.
`hybrid`: states that a step rewrites as a whole beside caches."""

_RUNS = 3
"""Runs that a plan learns from."""
_DEVICE = "target: ort, threads: 1, flops: 20 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 2 GB"


def build(
    folder: Path,
    model: str,
    devices: int,
    survive: str = "none",
    *,
    measured: bool = False,
    native: bool = False,
) -> Path:
    """The build of a model for so many equal devices a, b, … with equal shares, compiled where it is missing.

    Args:
        folder: of all builds.
        model: name of a subject.
        devices: number of devices.
        survive: as in devices.yaml.
        measured: plan with the records of a few runs.
        native: for the native runner, which is built already.
    """
    words = [model, str(devices), survive, *["measured"] * measured, *["native"] * native]
    subject, place = SUBJECTS[model], folder / "-".join(words)
    if (place / "build").exists():
        return place / "build"
    place.mkdir(parents=True, exist_ok=True)
    model_file, devices_file = place / "model.yaml", place / "devices.yaml"
    model_file.write_text(subject.model)
    names = "abcdefgh"[:devices]
    text = ["source: a", "objective: throughput", f"survive: {survive}", "devices:"]
    runner = "native" if native else "python"
    text += [f"  {name}: {{{_DEVICE}, runner: {runner}}}" for name in names]
    text += ["links:", "  default: {bandwidth: 1 Gbit/s, latency: 0.2 ms}"]
    text += [f"place: {{{', '.join(_shares(names, subject.layers))}}}", ""]
    devices_file.write_text("\n".join(text))
    if measured:
        devices_file = _measure(place, model_file, devices_file, subject.prompt)
    partc("compile", model_file, "--target", devices_file, "-o", place / "build")
    return place / "build"


def _shares(names: str, layers: int) -> Iterator[str]:
    """Equal shares: a plan may need fewer devices."""
    ends = [layers * number // len(names) for number in range(len(names) + 1)]
    for name, (begin, end) in zip(names, pairwise(ends), strict=True):
        yield f"{name}: layers {begin}-{end - 1}"


def _measure(place: Path, model: Path, devices: Path, prompt: int) -> Path:
    """devices.yaml with the times of a few runs."""
    first, profile = place / "first", place / "profile"
    partc("compile", model, "--target", devices, "-o", first)
    for _ in range(_RUNS):
        run_once(first, prompt)
    partc("profile", model, "--target", devices, "--from", first / RUNS, "-o", profile)
    return profile / "devices.yaml"
