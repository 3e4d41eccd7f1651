"""Models of which no machine could hold a layer are built without their weights."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from transformers import CONFIG_MAPPING

from partc.frontend.trace import large_tensors
from partc.frontend.trace.export import build_fake

pytestmark = pytest.mark.hf

SMALL: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
}  # fmt: skip
LARGE: dict[str, dict[str, Any]] = {
    "llama": {"vocab_size": 1 << 40},
    "deepseek_v3": {"n_routed_experts": 1 << 32, "first_k_dense_replace": 0},
    "llama4_text": {"num_local_experts": 1 << 36, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1},
}
"""An embedding, and experts made without values and as zeros, each of more than 64 TiB."""


def _build(family: str) -> Any:
    config = CONFIG_MAPPING[family](**(SMALL | LARGE[family]))
    return build_fake(config, "text-generation", torch.float32, "eager", FakeTensorMode())


@pytest.mark.parametrize("family", LARGE)
def test_parameters_larger_than_any_memory_are_never_made(family: str) -> None:
    network = _build(family)
    sizes = [parameter.nbytes for parameter in network.parameters()]
    assert all(isinstance(parameter, FakeTensor) for parameter in network.parameters())
    assert max(sizes) > 64 << 40
    tables = [buffer for name, buffer in network.named_buffers() if name.endswith("inv_freq")]
    assert tables
    assert not any(isinstance(table, FakeTensor) for table in tables)


def test_tied_parameters_stay_one() -> None:
    config = CONFIG_MAPPING["llama"](**SMALL, tie_word_embeddings=True)
    network = build_fake(config, "text-generation", torch.float32, "eager", FakeTensorMode())
    assert network.lm_head.weight is network.model.embed_tokens.weight
    config = CONFIG_MAPPING["llama"](**SMALL, tie_word_embeddings=False)
    network = build_fake(config, "text-generation", torch.float32, "eager", FakeTensorMode())
    assert network.lm_head.weight is not network.model.embed_tokens.weight


@pytest.mark.parametrize("family", LARGE)
def test_without_the_limit_they_would_be(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tensors, "BUFFER_BYTES", 1 << 62)
    with pytest.raises(RuntimeError, match="allocate"):
        _build(family)
