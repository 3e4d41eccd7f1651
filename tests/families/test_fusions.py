"""Turning fusions off changes the artifact and nothing that it computes: tokens against transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from transformers import CONFIG_MAPPING

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.frontend import load_module
from partc.frontend.trace.export import MODEL_CLASSES
from partc.ir.text import parse_module, print_module
from partc.pipeline.default import default_pipeline
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import fusions
from partc.verifier.reference import open_reference
from tests.families.check import MAX_SEQUENCE, devices_file, sample_prompts, save_tiny
from tests.families.ring import DirectRing
from tests.families.tiny import initialise, tiny_config

pytestmark = [pytest.mark.hf, pytest.mark.ort]
TOKENS = 12
NAMES = [name for names in fusions().values() for name in names]
CHOICES: dict[str, Sequence[str]] = {"none": (), "all": NAMES, **{name: (name,) for name in NAMES}}
"""Fusions that are turned off: none, all, each alone."""


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    "family",
    [
        "gpt2",
        "gemma2",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "qwen2", "qwen3")),
    ],
)
def test_generators(family: str, tmp_path: Path) -> None:
    """Grouped heads, a packed product of the model's own, biases, norms of heads, windows with soft caps."""
    save_tiny(tiny_config(family), tmp_path / "checkpoint")
    config = ModelConfig(
        CheckpointFolder(tmp_path / "checkpoint"), max_sequence=MAX_SEQUENCE, max_batch=2, max_requests=1
    )
    reference, prompts = open_reference(config), sample_prompts(97)
    expected = [reference.generate(prompt, TOKENS) for prompt in prompts]
    text, devices = print_module(load_module(config)), devices_file(tmp_path, 2)
    files = {}
    for name, off in CHOICES.items():
        build = tmp_path / name
        files[name] = _compile(text, devices, build, off)
        ring = DirectRing(build)
        assert [ring.generate([prompt], TOKENS)[0] for prompt in prompts] == expected, name
        batch = [prompts[1], prompts[2]]
        assert ring.generate(batch, TOKENS) == expected[1:], name
    assert files["none"] != files["all"]


def _compile(text: str, devices: Path, build: Path, off: Sequence[str]) -> list[bytes]:
    """The ONNX files of the bundle."""
    module = parse_module(text)
    run_passes(module, default_pipeline(devices, "even", "eq1+frontier", build, disable=off))
    return [path.read_bytes() for path in sorted(build.rglob("*.onnx"))]


@pytest.mark.in_turns(6)
def test_an_encoder(tmp_path: Path) -> None:
    """Layer norms with a skip, GELU, attention without a cache."""
    fields = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    checkpoint = tmp_path / "checkpoint"
    settings = CONFIG_MAPPING["bert"](**fields, vocab_size=90, max_position_embeddings=66, num_labels=3)
    network = MODEL_CLASSES["text-classification"].from_config(settings).eval()
    initialise(network, 0)
    network.save_pretrained(checkpoint)
    config = ModelConfig(CheckpointFolder(checkpoint), task="text-classification", max_sequence=32)
    text, devices = print_module(load_module(config)), devices_file(tmp_path, 2)
    tokens = np.array([[5, 7, 11, 13, 17]])
    inputs = {"input_ids": tokens, "token_type_ids": np.zeros_like(tokens)}
    expected = open_reference(config).outputs(inputs)
    for name, off in CHOICES.items():
        _compile(text, devices, tmp_path / name, off)
        found = DirectRing(tmp_path / name).outputs(inputs, [5])
        assert found.keys() <= expected.keys()
        for key, array in found.items():
            np.testing.assert_allclose(array, expected[key], atol=1e-4, err_msg=name)
