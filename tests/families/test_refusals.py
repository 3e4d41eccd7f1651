"""Models that must be refused: what a wrong compile would do silently is said instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import ModelError
from partc.frontend import load_module
from tests.families.check import save_tiny
from tests.families.tiny import tiny_config

pytestmark = pytest.mark.hf


def _load(folder: Path, max_sequence: int = 64) -> None:
    load_module(ModelConfig(CheckpointFolder(folder), max_sequence=max_sequence))


def test_a_bidirectional_model_is_no_decoder(tmp_path: Path) -> None:
    save_tiny(tiny_config("bert"), tmp_path)
    with pytest.raises(ModelError, match="attention is not causal"):
        _load(tmp_path)


def test_a_model_that_keeps_nothing_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_tiny(tiny_config("openai-gpt"), tmp_path)
    capfd.readouterr()
    with pytest.raises(ModelError, match="keeps no cache and no state"):
        _load(tmp_path)
    assert len(capfd.readouterr().err) < 500, "the exporter's chatter is not for users"


@pytest.mark.in_turns(4)
def test_a_cache_of_another_kind_is_named(tmp_path: Path) -> None:
    save_tiny(tiny_config("deepseek_v4"), tmp_path)
    with pytest.raises(ModelError, match="its code calls `store_compression_weights`"):
        _load(tmp_path)


@pytest.mark.in_turns(2)
def test_rotary_tables_that_change_with_the_length_are_refused(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "original_max_position_embeddings": 32,
    }
    fields = {**tiny_config("phi3"), "rope_parameters": rope, "original_max_position_embeddings": 32}
    save_tiny(fields, tmp_path)
    with pytest.raises(ModelError, match="rotary tables change behind 32 tokens"):
        _load(tmp_path, 64)
    _load(tmp_path, 32)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"\x02\0\0\0\0\0\0\0[]"),
        (
            "model.safetensors",
            b"\x40\0\0\0\0\0\0\0" + b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": []}}'.ljust(64),
        ),
        ("model.safetensors", b""),
        ("model.safetensors.index.json", b'{"weight_map": {"a": 3}}'),
        ("model.safetensors.index.json", b"[]"),
        ("generation_config.json", b"{"),
        ("config.json", b"[]"),
    ],
)
def test_damaged_files_are_named(file: str, content: bytes, tmp_path: Path) -> None:
    save_tiny(tiny_config("llama"), tmp_path)
    (tmp_path / file).write_bytes(content)
    if file.endswith(".index.json"):  # it counts where the weights are not in one file
        (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError) as caught:
        _load(tmp_path)
    assert "tmp" in str(caught.value) or str(tmp_path) in str(caught.value)
