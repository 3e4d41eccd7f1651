"""Adapters merged while weights are read: what peft merges, bit for bit but for DoRA; others are refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM

from partc.bundle.tensors import open_tensors
from partc.config.model import ModelConfig, read_model_config
from partc.config.section import Section
from partc.errors import UserError
from partc.frontend.load import open_weights
from partc.frontend.trace.export import build_fake
from partc.ir.graph import ModelInfo
from partc.ir.weights import materialize
from tests.families.check import save_tiny
from tests.frontend.quantized.makers import gptq, quantise_folder

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore::UserWarning:peft")]
_LLAMA = {
    "model_type": "llama", "vocab_size": 97, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
_GPT2 = {"model_type": "gpt2", "vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
_ATTENTION = ["q_proj", "v_proj"]
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": (_LLAMA, {"target_modules": _ATTENTION}),
    "all layers": (_LLAMA, {"target_modules": "all-linear"}),
    "rslora": (_LLAMA, {"target_modules": _ATTENTION, "use_rslora": True}),
    "dora": (_LLAMA, {"target_modules": _ATTENTION, "use_dora": True}),
    "patterns": (
        _LLAMA,
        {
            "target_modules": _ATTENTION,
            "rank_pattern": {"v_proj": 2},
            "alpha_pattern": {"layers.1.*.q_proj": 3},
        },
    ),
    "modules to save": (_LLAMA, {"target_modules": _ATTENTION, "modules_to_save": ["lm_head", "norm"]}),
    "embeddings": (_LLAMA, {"target_modules": ["embed_tokens", "q_proj"]}),
    "bias": (_GPT2, {"target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "lora_only"}),
    "gpt2": (_GPT2, {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    "gpt2 and dora": (_GPT2, {"target_modules": ["c_attn"], "fan_in_fan_out": True, "use_dora": True}),
}
_ROUNDED = {"dora", "embeddings", "gpt2 and dora"}
"""Where torch adds up a norm, or a product that is turned, in another order than numpy."""


def _train(config: dict[str, Any], options: dict[str, Any], tmp_path: Path) -> dict[str, torch.Tensor]:
    """A model and an adapter whose numbers are random; the parameters of peft's merged model."""
    import peft

    save_tiny(config, tmp_path / "base")
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    wrapped = peft.get_peft_model(
        network, peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **options)
    )
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    wrapped.save_pretrained(str(tmp_path / "adapter"))
    return dict(wrapped.merge_and_unload().state_dict())


def _config(tmp_path: Path, **options: Any) -> ModelConfig:
    entry = {"folder": str(tmp_path / "adapter"), **options}
    fields = {"model": str(tmp_path / "base"), "max_sequence": 32, "adapters": [entry]}
    return read_model_config(Section(fields, "model.yaml"), tmp_path)


def _parameters(config: ModelConfig, folder: Path) -> dict[str, np.ndarray]:
    source, weights = open_weights(config)
    sources = weights.fit(build_fake(source.config, config.task, torch.float32, "eager", FakeTensorMode()))
    read = open_tensors(ModelInfo("m", "text-generation", folder=str(folder), dtype="f32"))
    return {name: materialize(expr, read) for name, expr in sources.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_that_peft_merges(kind: str, tmp_path: Path) -> None:
    expected = _train(*KINDS[kind], tmp_path)
    found = _parameters(_config(tmp_path), tmp_path / "base")
    assert found.keys() <= expected.keys()
    for name, values in found.items():
        if kind in _ROUNDED:
            np.testing.assert_allclose(values, expected[name].numpy(), rtol=2e-6, atol=1e-8)
        else:
            assert np.array_equal(values, expected[name].numpy()), name


def test_a_factor_scales_what_is_added(tmp_path: Path) -> None:
    merged = _train(*KINDS["plain"], tmp_path)
    base = load_file(tmp_path / "base" / "model.safetensors")
    half = _parameters(_config(tmp_path, scale=0.5), tmp_path / "base")
    name = "model.layers.0.self_attn.q_proj.weight"
    between = (base[name] + merged[name]) / 2
    np.testing.assert_allclose(half[name], between.numpy(), atol=1e-6)


def test_weights_that_are_quantised_are_left_alone_unless_asked(tmp_path: Path) -> None:
    _train(*KINDS["plain"], tmp_path)
    plain = tmp_path / "base"
    shutil.move(plain, tmp_path / "plain")
    quantise_folder(tmp_path / "plain", plain, gptq(4, 32, symmetric=True))
    with pytest.raises(UserError, match="is quantised in the checkpoint"):
        _parameters(_config(tmp_path), plain)
    assert _parameters(_config(tmp_path, dequantize=True), plain)


def _settings(**wanted: Any) -> Callable[[dict[str, Any], dict[str, torch.Tensor]], None]:
    return lambda settings, tensors: settings.update(wanted)


def _renamed(settings: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    for key in list(tensors):
        tensors[key.replace("self_attn", "attention")] = tensors.pop(key)


def _narrower(settings: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    key = next(key for key in tensors if "lora_A" in key)
    tensors[key] = tensors[key][:, :-1].clone()


def _without_b(settings: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    del tensors[next(key for key in tensors if "lora_B" in key)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_settings(peft_type="IA3"), "of the kind 'IA3'"),
        (_settings(init_lora_weights="pissa_niter_4"), "begun with pissa_niter_4"),
        (_settings(trainable_token_indices=[3]), "single tokens"),
        (_settings(target_parameters=["experts.down_proj"]), "target_parameters"),
        (_settings(r=8), "has the rank 4"),
        (_renamed, "is no module of the model"),
        (_narrower, "in the model, and"),
        (_without_b, "lacks one of its two factors"),
    ],
)
def test_what_cannot_be_merged_is_named(change: Callable[..., None], words: str, tmp_path: Path) -> None:
    _train(*KINDS["plain"], tmp_path)
    file, weights = (
        tmp_path / "adapter" / "adapter_config.json",
        tmp_path / "adapter" / "adapter_model.safetensors",
    )
    settings, tensors = json.loads(file.read_text()), load_file(weights)
    change(settings, tensors)
    file.write_text(json.dumps(settings))
    save_file(tensors, weights)
    with pytest.raises(UserError) as caught:
        _parameters(_config(tmp_path), tmp_path / "base")
    assert words in caught.value.message


def test_an_adapter_needs_a_checkpoint(tmp_path: Path) -> None:
    fields = {"model": {"config": _LLAMA}, "adapters": [str(tmp_path)]}
    with pytest.raises(UserError, match="belongs to a checkpoint"):
        read_model_config(Section(fields, "model.yaml"), tmp_path)


def test_a_folder_without_an_adapter_is_refused(tmp_path: Path) -> None:
    save_tiny(_LLAMA, tmp_path / "base")
    (tmp_path / "adapter").mkdir()
    with pytest.raises(UserError, match=r"no adapter_config\.json"):
        _config(tmp_path)
