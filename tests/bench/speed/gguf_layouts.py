"""The models of this bench as llama.cpp wants them: names, orders of rows, settings.

As its own converter writes them: `LlamaModel`, `Mamba2Model` and `Qwen3_5TextModel` of its `conversion` folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Config = Mapping[str, Any]

_MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_ATTENTION = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
}  # fmt: skip
_OTHER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@dataclass(frozen=True)
class Layout:
    """How a family of models is written."""

    arch: str
    """The name of llama.cpp for it."""
    layer: Mapping[str, str]
    """Parameter of a layer, without `.weight` → llama.cpp's name, without `blk.N.`."""
    other: Mapping[str, str]
    """Parameters outside layers, likewise."""
    tensor: Callable[[str, Array, Config], Array]
    """(the name as in `layer` or `other`, values, configuration) → the values as they are written."""
    add_settings: Callable[[Any, Config], None]
    """(writer, configuration): add what llama.cpp wants to know of the model."""

    def convert(self, name: str, values: Array, config: Config) -> tuple[str, Array]:
        """A parameter as it is written: its name there, such as `blk.3.ffn_up.weight`, and float32 values."""
        base = name.removesuffix(".weight")
        ending = name.removeprefix(base)
        layer, kind = ("", base) if base in self.other else base.split(".", 3)[2:]
        found = self.other.get(base) or f"blk.{layer}.{self.layer[kind]}"
        return found + ending, np.ascontiguousarray(self.tensor(kind, values, config), np.float32)


def interleaved(weight: Array, heads: int) -> Array:
    """Rows of q or k in the order of llama.cpp, which turns neighbours where transformers turns the two halves."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


def rope_theta(config: Config) -> float:
    """The base of rotary embeddings, in a configuration of transformers before version 5 or since."""
    return float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])


def _llama_tensor(kind: str, values: Array, config: Config) -> Array:
    heads = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}
    return interleaved(values, config[heads[kind]]) if kind in heads else values


def _add_attention(writer: Any, config: Config) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope_theta(config))


def _add_llama(writer: Any, config: Config) -> None:
    _add_attention(writer, config)
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])


def _mamba2_tensor(kind: str, values: Array, config: Config) -> Array:
    match kind:
        case "mixer.conv1d":
            return values.squeeze(1)
        case "mixer.A_log":
            return -np.exp(values)[:, None]
        case "mixer.D":
            return values[:, None]
        case "mixer.norm":
            return values.reshape(config["n_groups"], -1)
        case _:
            return values


def _add_mamba2(writer: Any, config: Config) -> None:
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_inner_size(config["num_heads"] * config["head_dim"])
    writer.add_ssm_state_size(config["state_size"])
    writer.add_ssm_time_step_rank(config["num_heads"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])


def _delta_tensor(kind: str, values: Array, config: Config) -> Array:
    """transformers stores norms less 1, and the value heads of a key head side by side.

    llama.cpp stores norms as they are, and the first value head of every key head before the second of any.
    """
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    before = 2 * keys * config["linear_key_head_dim"]

    def tiled(rows: Array) -> Array:
        groups = rows.reshape(keys, heads // keys, rows.shape[0] // heads, *rows.shape[1:])
        return groups.swapaxes(0, 1).reshape(rows.shape)

    match kind.removeprefix("linear_attn."):
        case "in_proj_qkv":
            return np.concatenate([values[:before], tiled(values[before:])])
        case "conv1d":
            return np.concatenate([values[:before, 0], tiled(values[before:, 0])])
        case "in_proj_z" | "in_proj_a" | "in_proj_b" | "dt_bias":
            return tiled(values)
        case "A_log":
            return tiled(-np.exp(values))
        case "out_proj":
            return tiled(values.T).T
        case _:
            is_less_one = kind.endswith("norm") and kind != "linear_attn.norm"
            return values + 1 if is_less_one else values


def _add_delta(writer: Any, config: Config) -> None:
    _add_attention(writer, config)
    head = config["head_dim"]
    turned = int(head * config["rope_parameters"]["partial_rotary_factor"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(turned)
    writer.add_rope_dimension_sections([*((turned // 2 + 2 - axis) // 3 for axis in range(3)), 0])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)


LAYOUTS: Mapping[str, Layout] = {
    "llama": Layout(
        "llama", _ATTENTION | _MLP | {"post_attention_layernorm": "ffn_norm"}, _OTHER, _llama_tensor, _add_llama
    ),
    "mamba2": Layout(
        "mamba2",
        {
            "norm": "attn_norm", "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d",
            "mixer.conv1d.bias": "ssm_conv1d.bias", "mixer.dt_bias": "ssm_dt.bias", "mixer.A_log": "ssm_a",
            "mixer.D": "ssm_d", "mixer.norm": "ssm_norm", "mixer.out_proj": "ssm_out",
        },
        {"backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "lm_head": "output"},
        _mamba2_tensor,
        _add_mamba2,
    ),
    "qwen3_5_text": Layout(
        "qwen35",
        {
            **_ATTENTION, **_MLP, "post_attention_layernorm": "post_attention_norm",
            "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
            "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
            "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta",
            "linear_attn.conv1d": "ssm_conv1d", "linear_attn.dt_bias": "ssm_dt.bias",
            "linear_attn.A_log": "ssm_a", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
        },
        _OTHER,
        _delta_tensor,
        _add_delta,
    ),
}  # fmt: skip
"""Model type of transformers → layout."""
