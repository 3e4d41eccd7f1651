"""Tiny configs of every causal language model that transformers has, by one rule and without code of any family.

A rule: a config key that means a width, a count of layers or heads, or a size of a table gets a small value. The
model is then made with a seed and an initialisation under which attention outweighs the embedding, so that attention,
windows and positions change the tokens.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "dim": 64,
    "dim_model": 64,
    "embedding_size": 64,
    "word_embed_proj_dim": 64,
    "num_hidden_layers": 4,
    "num_layers": 4,
    "n_layer": 4,
    "n_layers": 4,
    "decoder_layers": 4,
    "encoder_layers": 4,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "attention_head_dim": 16,
    "global_head_dim": 16,
    "dim_head": 16,
    "d_kv": 16,
    "rotary_dim": 8,
    "intermediate_size": 96,
    "n_inner": 96,
    "ffn_dim": 96,
    "dim_ff": 96,
    "dff": 96,
    "d_ff": 96,
    "decoder_ffn_dim": 96,
    "encoder_ffn_dim": 96,
    "ffn_hidden_size": 96,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "qk_head_dim": 24,
    "max_position_embeddings": 256,
    "n_positions": 256,
    "n_ctx": 256,
    "max_seq_len": 256,
    "max_sequence_length": 256,
    "sliding_window": 16,
    "attention_window": 16,
    "attention_chunk_size": 16,
    "window_size": 16,
    "local_attention": 16,
    "vocab_size_per_layer_input": 97,
    "hidden_size_per_layer_input": 16,
    "num_kv_shared_layers": 0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "seq_length": 256,
    "index_topk": 8,
    "index_n_heads": 32,  # with few, many scores are 0, and libraries choose differently among equal ones
    "index_head_dim": 16,
    "state_size": 16,
    "mamba_d_state": 16,
    "mamba_d_head": 16,
    "mamba_headdim": 16,
    "mamba_head_dim": 16,
    "mamba_n_heads": 8,
    "mamba_num_heads": 8,
    "n_mamba_heads": 8,
    "ssm_state_size": 16,
    "mamba_chunk_size": 8,
    "mamba_d_ssm": 128,
    "chunk_size": 8,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
"""Key of a config → its value in a tiny model."""

_LINEAR = {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]}
_SHORT = {"layer_types": ["conv", "conv", "full_attention", "conv"]}
_NO_LIMIT = {"time_step_min": 1e-30}
"""transformers limits time steps in prompts, and not in single tokens."""

FURTHER: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [2]},
    "dots1": {"n_shared_experts": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "attention", "mamba"]},
    "jamba": {"attn_layer_period": 4, "attn_layer_offset": 2},
    "lfm2": _SHORT,
    "lfm2_moe": _SHORT | {"num_dense_layers": 1},
    "lfm3": _SHORT,
    "longcat_flash": {"zero_expert_num": 2, "expert_ffn_hidden_size": 32},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "nemotron_h": _NO_LIMIT,
    "qwen4_exp": _LINEAR,
    "qwen4_exp_text": _LINEAR,
    "zamba2": {
        "layers_block_type": ["linear_attention", "linear_attention", "hybrid", "linear_attention"],
        "layer_types": None,
        "head_dim": None,
        "num_key_value_heads": None,
    }
    | _NO_LIMIT,
    "zaya": {"num_experts_per_tok": 1},
}
"""Keys of families whose layers are of several kinds, or whose sizes must fit together: each kind has a layer.
None: the key is left out."""


def causal_families() -> list[str]:
    """The model types that transformers has a causal language model for."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny_config(family: str) -> dict[str, Any]:
    """The fields of a tiny config of `family`, `model_type` among them."""
    default = CONFIG_MAPPING[family]()
    text = default.get_text_config(decoder=True)
    # transformers gives the decoder of an encoder-decoder under other names, so its own are added.
    known = {**text.to_dict(), **(default.to_dict() if text.model_type == family else {})}
    known |= {key: known[target] for key, target in text.attribute_map.items() if target in known}
    fields = {
        key: value
        for key, value in SIZES.items()
        if key in known and _numeric(known[key]) and not _computed(text, key)
    }
    layers = next(
        (fields[k] for k in ("num_hidden_layers", "num_layers", "n_layer", "n_layers") if k in fields), 4
    )
    kinds = known.get("layer_types")
    if isinstance(kinds, list) and kinds and not _computed(text, "layer_types"):
        fields["layer_types"] = _shortened(kinds, layers)
    if "kv_lora_rank" in fields:  # latent attention has a key for every head, and rotates a part of it only
        fields |= {"num_key_value_heads": 4, "head_dim": fields.get("qk_rope_head_dim", 8)}
    if "attention_types" in known:
        fields["attention_types"] = [[["global", "local"], layers // 2]]
    fields |= FURTHER.get(family, {})
    fields = {key: value for key, value in fields.items() if value is not None}
    return {"model_type": text.model_type if text is not default else family, **fields}


def _computed(config: Any, key: str) -> bool:
    """Whether a config works a key out by itself, so that it cannot be given."""
    found = getattr(type(config), key, None)
    return isinstance(found, property) and found.fset is None


def _numeric(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _shortened(kinds: list[str], count: int) -> list[str]:
    """A list of layer kinds of the given length that has every kind of the original."""
    distinct = list(dict.fromkeys(kinds))[:count]
    return (distinct * count)[:count]


def tiny_model(fields: dict[str, Any], seed: int = 0, scale: float = 0.35) -> Any:
    """A model with random weights that tokens really depend on.

    Matrices are drawn with a standard deviation of `scale` / sqrt(fan in / 16), norms near 1, biases small.

    Raises:
        Exception: whatever transformers raises for a config that it cannot build.
    """
    kind = fields["model_type"]
    config = CONFIG_MAPPING[kind](**{key: value for key, value in fields.items() if key != "model_type"})
    with quiet():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    initialise(model, seed, scale)
    return model


def initialise(model: torch.nn.Module, seed: int, scale: float = 0.35) -> None:
    """Draw all parameters anew, as `tiny_model` describes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            _initialise(name, parameter, generator, scale)
        for name, buffer in sorted(model.named_buffers()):
            if "bias" in name and buffer.is_floating_point():
                buffer.zero_()


def computes(network: Any) -> int:
    """The number of parameters of a model that transformers itself can run.

    Raises:
        Exception: whatever it raises where the sizes of a tiny config do not fit together.
    """
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad(), quiet():
        network(input_ids=ids, use_cache=False)
        network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, pad_token_id=0)
    return sum(parameter.numel() for parameter in network.parameters())


def _initialise(name: str, parameter: torch.Tensor, generator: torch.Generator, scale: float) -> None:
    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
    if parameter.ndim >= 2 and ("embed" in name or "wte" in name or "wpe" in name):
        parameter.copy_(0.1 * noise)
    elif parameter.ndim >= 2:
        fan_in = max(1, parameter.shape[-1])
        parameter.copy_(noise * (4 * scale / fan_in**0.5))
    elif "q_norm" in name or "k_norm" in name:
        parameter.add_(1 + 0.3 * noise)  # sharper attention: else a shifted rotation hardly moves it
    elif "norm" in name or "ln" in name:
        parameter.add_(0.1 * noise)
    else:
        parameter.add_(0.05 * noise)


@contextlib.contextmanager
def quiet() -> Any:
    """No warnings of transformers about tiny configs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
