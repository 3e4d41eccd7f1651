"""Models of the trials, and their builds: rings of 3 or 4 devices on this machine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

STORYTELLER = Path(__file__).parents[2] / "examples" / "storyteller"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and the requests that are made to it."""

    model: str
    """The text of its model.yaml."""
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
SUBJECTS = {
    "storyteller": Subject(_STORIES, vocabulary=768, prompt=8, tokens=200),
    "grouped": Subject(_GROUPED, vocabulary=2000, prompt=16, tokens=200),
    "parts": Subject(_STORIES, vocabulary=768, prompt=190, tokens=60),
}
"""`grouped`: grouped queries, weights in int4. `parts`: prompts of more tokens than go through the ring in one step."""

_DEVICE = "target: ort, threads: 1, flops: 20 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 2 GB"


def build(folder: Path, model: str, devices: int, survive: str = "none") -> Path:
    """The build of a model for so many equal devices a, b, …, compiled where it is missing."""
    place = folder / f"{model}-{devices}-{survive}"
    if (place / "build").exists():
        return place / "build"
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.yaml").write_text(SUBJECTS[model].model)
    lines = [f"  {name}: {{{_DEVICE}}}" for name in "abcdefgh"[:devices]]
    text = ["source: a", "objective: throughput", f"survive: {survive}", "devices:", *lines]
    text += ["links:", "  default: {bandwidth: 1 Gbit/s, latency: 0.2 ms}", ""]
    (place / "devices.yaml").write_text("\n".join(text).replace("survive: none\n", ""))
    command = [sys.executable, "-m", "partc.cli", "compile", str(place / "model.yaml")]
    command += ["--target", str(place / "devices.yaml"), "-o", str(place / "build")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return place / "build"
