"""The default of `max_sequence`, by what the model says of its positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from partc.config.model import load_model_config
from partc.config.positions import LONGEST, default_length


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 64}, 64),
        ({"max_position_embeddings": 4096}, LONGEST),
        ({"n_positions": 128}, 128),
        ({"text_config": {"max_position_embeddings": 96}, "max_position_embeddings": 64}, 96),
        ({"max_position_embeddings": -1}, LONGEST),
        ({"max_position_embeddings": "many"}, LONGEST),
        ({}, LONGEST),
    ],
)
def test_it_is_no_longer_than_the_model(config: dict[str, Any], length: int, tmp_path: Path) -> None:
    assert default_length(config) == length
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert default_length(tmp_path) == length


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_config_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    assert default_length(tmp_path) == LONGEST


def test_a_checkpoint_folder_without_a_model_yaml(tmp_path: Path) -> None:
    """Lengths and workload fit a model of few positions."""
    config = {"model_type": "llama", "max_position_embeddings": 40}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    found = load_model_config(tmp_path)
    assert found.max_sequence == 40
    assert found.workload.prompt + found.workload.generate <= 40


def test_what_is_written_counts(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(
        "model: {config: {model_type: llama, max_position_embeddings: 64}}\nmax_sequence: 48\n"
    )
    assert load_model_config(tmp_path / "model.yaml").max_sequence == 48
