"""MXFP4 as gpt-oss has it: the experts that transformers makes of blocks and scales."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from partc.bundle.tensors import open_tensors
from partc.config.model import load_model_config
from partc.errors import UserError
from partc.frontend.load import open_weights
from partc.frontend.trace.export import build_fake
from partc.ir.graph import ModelInfo
from partc.ir.weights import materialize
from tests.families.check import save_tiny

pytestmark = pytest.mark.hf
_GPT_OSS = {
    "model_type": "gpt_oss", "vocab_size": 97, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4,
    "num_experts_per_tok": 2, "max_position_embeddings": 128,
}  # fmt: skip


def save_mxfp4(folder: Path) -> dict[str, torch.Tensor]:
    """A tiny gpt-oss with quantised experts; the floats of all parameters."""
    save_tiny(_GPT_OSS, folder)
    rng = np.random.default_rng(3)
    stored: dict[str, torch.Tensor] = {}
    floats: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[name] = floats[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        blocks = torch.from_numpy(rng.integers(0, 256, (experts, rows, columns // 32, 16), dtype=np.uint8))
        scales = torch.from_numpy(rng.integers(116, 124, (experts, rows, columns // 32), dtype=np.uint8))
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        floats[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config))
    return floats


def _sources(folder: Path) -> dict[str, Any]:
    config = load_model_config(folder)
    source, weights = open_weights(config)
    return weights.fit(build_fake(source.config, config.task, torch.float32, "eager", FakeTensorMode()))


def test_experts_are_those_of_transformers(tmp_path: Path) -> None:
    floats = save_mxfp4(tmp_path / "model")
    read = open_tensors(ModelInfo("m", "text-generation", folder=str(tmp_path / "model"), dtype="f32"))
    sources = _sources(tmp_path / "model")
    assert sources.keys() == floats.keys()
    for name, expected in floats.items():
        # transformers keeps the sign of a zero, which is equal to one without.
        assert np.array_equal(materialize(sources[name], read), expected.numpy()), name


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path) -> None:
    save_mxfp4(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.mlp.experts.down_proj_scales"][0, 0, 0] = 255
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="no number"):
        _sources(tmp_path / "model")
