"""Checkpoints: sharded, stored in another type, converted while loaded, damaged; parameters are found by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING

from partc.bundle.tensors import open_tensors
from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import ModelError
from partc.frontend import load_module
from partc.frontend.source import open_source
from partc.frontend.trace.export import MODEL_CLASSES
from partc.ir.graph import Module
from partc.ir.weights import materialize
from tests.families.check import save_tiny
from tests.families.tiny import tiny_config

pytestmark = pytest.mark.hf


def _load(folder: Path) -> Module:
    return load_module(ModelConfig(CheckpointFolder(folder), max_sequence=32))


def _assert_weights_are_the_models(module: Module, folder: Path) -> None:
    """The references of the IR yield the parameters that transformers loads, one by one."""
    config = open_source(CheckpointFolder(folder)).config
    network: Any = MODEL_CLASSES["text-generation"].from_pretrained(
        folder, config=config, dtype=torch.float32
    )
    parameters = dict(network.named_parameters(remove_duplicate=False))
    read = open_tensors(module.info)
    checked = 0
    for weight in module.graph.weights():
        assert weight.source is not None
        values = materialize(weight.source, read)
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, parameters[weight.name].detach().numpy())
        checked += 1
    assert checked > 10


@pytest.mark.in_turns(6)
@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "qwen2_moe"])
def test_references_yield_what_transformers_loads(family: str, tmp_path: Path) -> None:
    save_tiny(tiny_config(family), tmp_path)
    _assert_weights_are_the_models(_load(tmp_path), tmp_path)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_checkpoint_stored_in_another_type_is_cast(dtype: torch.dtype, tmp_path: Path) -> None:
    save_tiny(tiny_config("llama"), tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    module = _load(tmp_path)
    assert "cast" in str(module.graph.weights()[0].source)
    _assert_weights_are_the_models(module, tmp_path)


def test_a_sharded_checkpoint(tmp_path: Path) -> None:
    from tests.families.tiny import tiny_model

    tiny_model(tiny_config("llama")).save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    _assert_weights_are_the_models(_load(tmp_path), tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    from tests.families.tiny import tiny_model

    tiny_model(tiny_config("llama")).save_pretrained(tmp_path, max_shard_size="100KB")
    gone = sorted(tmp_path.glob("model-*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ModelError, match=gone.name):
        _load(tmp_path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_tiny(tiny_config("llama"), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"no tensor for model\.layers\.1\.mlp\.up_proj\.weight \[96, 64\]"):
        _load(tmp_path)


def test_a_missing_head_may_be_the_table_of_tokens(tmp_path: Path) -> None:
    save_tiny({**tiny_config("llama"), "tie_word_embeddings": False}, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"no tensor for lm_head\.weight") as caught:
        _load(tmp_path)
    assert caught.value.hint
    assert "tie_word_embeddings: true" in caught.value.hint


def test_a_misshapen_tensor_is_named_with_both_shapes(tmp_path: Path) -> None:
    save_tiny(tiny_config("llama"), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"] = torch.zeros(63)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model\.norm\.weight should be \[64\].*is \[63\]"):
        _load(tmp_path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    save_tiny(tiny_config("llama"), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="lies outside the file"):
        _load(tmp_path)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    save_tiny(tiny_config("llama"), tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickle"):
        _load(tmp_path)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_an_encoder_decoder_is_refused_by_that_name(kind: str, tmp_path: Path) -> None:
    """Its decoder has tensors of its own, so without the refusal the message would be one about tensors."""
    config = CONFIG_MAPPING[kind](architectures=[f"{kind.title()}ForConditionalGeneration"])
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=f"{kind} is an encoder-decoder") as error:
        _load(tmp_path)
    assert "config.json, is_encoder_decoder" in str(error.value)
