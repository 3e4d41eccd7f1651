"""Models with states that a step rewrites as a whole, in rings that lose devices: tokens stay those of a quiet ring."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from partc.cli.main import run
from tests.e2e.kills import TOKENS, drawn

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.in_turns(3, whole=True)]

MODEL = """\
model:
  seed: 4
  config: {model_type: qwen3_next, hidden_size: 32, num_hidden_layers: 6, num_attention_heads: 4, head_dim: 8,
           num_key_value_heads: 2, intermediate_size: 48, vocab_size: 120, max_position_embeddings: 64,
           num_experts: 0, linear_num_value_heads: 4, linear_num_key_heads: 2, linear_key_head_dim: 8,
           linear_value_head_dim: 8,
           layer_types: [linear_attention, full_attention, linear_attention, linear_attention, full_attention,
                         linear_attention]}
max_sequence: 48
max_requests: 2
"""
DEVICES = """\
source: phone
objective: throughput
survive: one
place: {phone: layers 0-1, board: layers 2-3, old: layers 4-5}
devices:
  phone: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 MB}
  board: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 MB}
  old: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 MB}
links:
  default: {bandwidth: 1 Gbit/s, latency: 1 ms}
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    (folder / "model.yaml").write_text(MODEL)
    (folder / "devices.yaml").write_text(DEVICES)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder / "build"


def test_verify(build: Path) -> None:
    assert run(["verify", str(build), "--tokens", "12"]) == 0


@pytest.mark.parametrize("victim", ["board", "old"])
def test_a_killed_device_takes_no_token_with_it(build: Path, victim: str) -> None:
    expected = drawn(build)
    assert len(set(expected[0])) > 4, "a model that says one thing only proves nothing"
    assert drawn(build, victim) == expected


@pytest.mark.slow
def test_fifty_kills(build: Path) -> None:
    rng = random.Random(17)
    for seed in range(50):
        expected = drawn(build, seed=seed)
        assert drawn(build, rng.choice(["board", "old"]), rng.randint(1, TOKENS - 2), seed) == expected, seed
