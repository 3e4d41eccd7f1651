"""Encoders and classifiers, cut in three: what comes out is what transformers computes, in unequal batches too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.dtypes import Array
from partc.frontend.trace.export import MODEL_CLASSES
from partc.pipeline.sharing import SHARES_ALL
from tests.families.check import compile_ring, devices_file, simplified
from tests.families.shares import SHARES, divided
from tests.families.tiny import initialise

pytestmark = [pytest.mark.hf, pytest.mark.ort]

_BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 90,
    "max_position_embeddings": 66,
    "num_labels": 3,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": _BERT,
    "distilbert": {
        "dim": 32,
        "n_layers": 4,
        "n_heads": 4,
        "hidden_dim": 48,
        "vocab_size": 90,
        "max_position_embeddings": 64,
    },
    "roberta": {**_BERT, "pad_token_id": 1},
    "xlm-roberta": {**_BERT, "pad_token_id": 1},
}
DECODERS: dict[str, dict[str, Any]] = {
    "llama": {**_BERT, "num_key_value_heads": 2, "pad_token_id": 0},
    "gpt2": {
        "n_embd": 32,
        "n_layer": 4,
        "n_head": 4,
        "n_positions": 64,
        "vocab_size": 90,
        "pad_token_id": 0,
        "num_labels": 3,
    },
    "mistral": {**_BERT, "num_key_value_heads": 2, "sliding_window": 5, "pad_token_id": 0},
}
SHARED = ("bert", "distilbert")
"""Encoders whose blocks are divided, too."""
LENGTHS = (9, 4)
TOLERANCE = 1e-4


def saved(kind: str, fields: dict[str, Any], task: str, folder: Path) -> Any:
    """A tiny network, saved as a checkpoint."""
    network = MODEL_CLASSES[task].from_config(CONFIG_MAPPING[kind](**fields)).eval()
    initialise(network, 0)
    network.save_pretrained(folder)
    return network


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("task", ["feature-extraction", "text-classification"])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in SHARED else pytest.mark.slow) for kind in ENCODERS]
)
def test_encoder(kind: str, task: str, tmp_path: Path) -> None:
    shares = SHARES if kind in SHARED and task == "feature-extraction" else ()
    compare(
        kind, ENCODERS[kind], task, tmp_path, shares=shares, strategies=SHARES_ALL if kind == "bert" else ()
    )


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "gpt2" else pytest.mark.slow) for kind in DECODERS]
)
def test_classification_with_a_decoder(kind: str, tmp_path: Path) -> None:
    compare(kind, DECODERS[kind], "text-classification", tmp_path)


def compare(
    kind: str,
    fields: dict[str, Any],
    task: str,
    folder: Path,
    targets: Sequence[str] = ("ort",),
    shares: Sequence[Sequence[int]] = (),
    strategies: Sequence[str] = (),
) -> None:
    """Two sentences of unequal length through three devices; and, for each of `shares`, with divided blocks.

    `strategies`: of `partc.pipeline.sharing`; three devices share every block.
    """
    network = saved(kind, fields, task, folder / "checkpoint")
    config = ModelConfig(CheckpointFolder(folder / "checkpoint"), task=task, max_sequence=32, max_batch=2)
    text = simplified(config)
    ring = compile_ring(text, folder / "build", devices_file(folder, 3, targets))
    assert len(ring.roles) == 3
    rng = np.random.default_rng(0)
    pad = fields.get("pad_token_id", 0)
    ids = np.full((2, max(LENGTHS)), pad, np.int64)
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = rng.integers(3, 90, length)
    mask = (np.arange(max(LENGTHS))[None] < np.array(LENGTHS)[:, None]).astype(np.int64)
    inputs = {"input_ids": ids}
    if "token_type_ids" in ring.roles[ring.source].inputs:
        inputs["token_type_ids"] = rng.integers(0, 2, ids.shape)
    arguments = {name: torch.from_numpy(value) for name, value in inputs.items()}
    with torch.no_grad():
        right = network(**arguments, attention_mask=torch.from_numpy(mask))
    _check_outputs(ring.outputs(inputs, LENGTHS), right, mask)
    for strategy in strategies:
        three = devices_file(folder, 3, targets)
        ring = compile_ring(text, folder / f"build-{strategy}", three, strategy=strategy)
        _check_outputs(ring.outputs(inputs, LENGTHS), right, mask)
        short = {name: array[:1, :2] for name, array in inputs.items()}  # fewer rows than devices
        with torch.no_grad():
            right_short = network(**{name: torch.from_numpy(value) for name, value in short.items()})
        _check_outputs(ring.outputs(short, (2,)), right_short, np.ones((1, 2), np.int64))
    for number, weights in enumerate(shares):
        build, one = folder / f"shares{number}", devices_file(folder, 1, targets)
        _check_outputs(compile_ring(text, build, one, divided(weights)).outputs(inputs, LENGTHS), right, mask)


def _check_outputs(found: Mapping[str, Array], right: Any, mask: Array) -> None:
    assert found
    for name, array in found.items():
        expected = right[name].numpy()
        if name == "last_hidden_state":  # rows behind the end of a sentence mean nothing
            array, expected = array[mask == 1], expected[mask == 1]
        np.testing.assert_allclose(array, expected, atol=TOLERANCE, rtol=0)
        assert np.ptp(expected) > 0.01
