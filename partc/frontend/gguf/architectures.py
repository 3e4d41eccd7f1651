"""Configs of transformers from the metadata of GGUF files, by a table: one row an architecture of llama.cpp.

A row says how a family calls what the file calls `embedding_length`, which settings follow from tensors that are there
or not, and how llama.cpp's converter changed tensors, so that it can be undone (`names.py`). What neither has a key for
is as in llama.cpp itself, and said where it stands. An architecture without a row is refused: a guess would compute
something else without a word (transformers 5.23 reads gemma 2 with a scale that is not the file's, and a Mixtral as a
dense Llama).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partc.errors import ModelError
from partc.frontend.gguf.file import GgufFile

Config = dict[str, Any]

_COMMON = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
}
"""Key behind the architecture's name → setting."""
_RMS = {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
_HEAD = {"attention.key_length": "head_dim"}
_EXPERTS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
_LOCAL_EXPERTS = {**_EXPERTS, "expert_count": "num_local_experts"}
"""The same as some families call them."""
_WINDOW = {"attention.sliding_window": "sliding_window"}
_LOW, _HIGH = 1.0, 4.0
"""`low_freq_factor` and `high_freq_factor` of every published Llama 3."""
_ATTENTION_BIAS = {"attention_bias": "blk.0.attn_q.bias"}
_MLP_BIAS = {"mlp_bias": "blk.0.ffn_up.bias"}


@dataclass(frozen=True)
class Architecture:
    """How a family of transformers and an architecture of llama.cpp belong together."""

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)
    """Key behind the architecture's name → setting, besides the common ones."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Setting that is true where the file has a tensor, else false → that tensor."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that all models of the architecture have."""
    finish: Callable[[Config, GgufFile], None] = lambda config, file: None
    """Sets what else follows from the file."""
    permutes: bool = False
    """Whether rows of queries and keys lie in pairs of llama.cpp's own rotation."""
    shifts_norms: bool = False
    """Whether factors of norms are stored + 1."""
    turned: str = ""
    """Regular expression of parameters that are stored transposed (`Conv1D`)."""
    has_common: bool = True
    """Whether the common keys are called as in a Llama."""


def config_of(file: GgufFile) -> Config:
    """The config.json of the model of a file.

    Raises:
        ModelError: its architecture has no row, or it says what this version cannot express.
    """
    row = architecture_of(file)
    config: Config = {"model_type": row.model_type, "vocab_size": _rows(file, "token_embd.weight")}
    config.update(row.fixed)
    prefix = _prefix(file)
    for key, setting in {**(_COMMON if row.has_common else {}), **row.keys}.items():
        value = file.metadata.get(prefix + key)
        if value is not None:
            config[setting] = _only(value, prefix + key, file)
    _check_sizes(config, row, file)
    names = set(file.names())
    config.update({setting: tensor in names for setting, tensor in row.flags.items()})
    config["tie_word_embeddings"] = "output.weight" not in names
    if config.get("sliding_window") == 0:
        config["sliding_window"] = None
    _rotate(config, file, prefix)
    for key, setting in (("bos", "bos_token_id"), ("eos", "eos_token_id"), ("padding", "pad_token_id")):
        token = file.number(f"tokenizer.ggml.{key}_token_id")
        config[setting] = token if token is not None and token < config["vocab_size"] else None
    row.finish(config, file)
    _check_rotation(config, file)
    config["architectures"] = [_causal_class(row.model_type)]
    return config


def architecture_of(file: GgufFile) -> Architecture:
    """The row of a file's architecture.

    Raises:
        ModelError: there is none.
    """
    name = str(file.text("general.architecture"))
    if name == "llama" and file.metadata.get("llama.expert_count"):
        name = "mixtral"
    if name not in ARCHITECTURES:
        raise ModelError(
            f"its architecture is {name!r}, which partc does not read from GGUF",
            where=str(file.path),
            hint=f"give the checkpoint in safetensors; known: {', '.join(ARCHITECTURES)}",
        )
    return ARCHITECTURES[name]


def _prefix(file: GgufFile) -> str:
    """The beginning of the architecture's keys."""
    return f"{file.metadata['general.architecture']}."


_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads")
_SIZES_OF_GPT2 = ("n_layer", "n_embd", "n_head")


def _check_sizes(config: Config, row: Architecture, file: GgufFile) -> None:
    """Refuse a header that lacks a size without which there is no model, or has numbers that are none."""
    for name in _SIZES if row.has_common else _SIZES_OF_GPT2:
        if type(config.get(name)) is not int or config[name] <= 0:
            raise ModelError(
                f"its header does not say {name}", where=str(file.path), hint="download it again"
            )
    stored = {*row.keys.values(), *_COMMON.values()} & config.keys()
    for name in stored - {name for name, value in row.fixed.items() if value is config.get(name)}:
        if not isinstance(config[name], int | float):
            raise ModelError(
                f"{name} of its header is no number", where=str(file.path), hint="download it again"
            )


def _causal_class(model_type: str) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type])


def _rows(file: GgufFile, name: str) -> int:
    return file.entry(name).shape[0]


def _only(value: Any, key: str, file: GgufFile) -> Any:
    """The value of a key that some files give for each layer."""
    if not isinstance(value, list):
        return value
    if value and all(each == value[0] for each in value):
        return value[0]
    raise ModelError(
        f"{key} differs from layer to layer, which partc does not read from GGUF",
        where=str(file.path),
        hint="give the checkpoint in safetensors",
    )


def _rotate(config: Config, file: GgufFile, prefix: str) -> None:
    """Set the parameters of rotary positions."""
    get = file.number
    theta, kind = get(f"{prefix}rope.freq_base"), file.text(f"{prefix}rope.scaling.type")
    found: Config = {"rope_type": "default"}
    factor = get(f"{prefix}rope.scaling.factor")
    names = set(file.names())
    if "rope_freqs.weight" in names:
        found = _llama3(file)
    elif "rope_factors_long.weight" in names:
        found = {
            "rope_type": "longrope",
            "long_factor": _numbers(file, "rope_factors_long.weight"),
            "short_factor": _numbers(file, "rope_factors_short.weight"),
            "original_max_position_embeddings": get(f"{prefix}rope.scaling.original_context_length"),
        }
    elif kind == "linear" and factor not in (None, 1.0, 0.0):
        found = {"rope_type": "linear", "factor": factor}
    elif kind == "yarn":
        found = {"rope_type": "yarn", "factor": factor}
        for key, setting in (
            ("original_context_length", "original_max_position_embeddings"),
            ("yarn_beta_fast", "beta_fast"),
            ("yarn_beta_slow", "beta_slow"),
        ):
            if (value := get(f"{prefix}rope.scaling.{key}")) is not None:
                found[setting] = value
    elif kind not in (None, "none", "linear"):
        raise ModelError(
            f"its rotary positions are scaled by {kind!r}, which partc does not read from GGUF",
            where=str(file.path),
            hint="give the checkpoint in safetensors",
        )
    if theta is not None:
        found["rope_theta"] = theta
    if theta is not None or found["rope_type"] != "default":
        config["rope_parameters"] = found


def _numbers(file: GgufFile, name: str) -> list[float]:
    return [float(str(number)) for number in file.read(name).astype(np.float32).reshape(-1)]


def _llama3(file: GgufFile) -> Config:
    """The scaling whose factors the file holds: that of Llama 3.1, or another that has the same form.

    The converter writes what a frequency is divided by; the settings are the ones of the published models that give
    these factors (Llama 3.1: 8, 3.2: 32, both 1, 4 and 8192).
    """
    stored = file.read("rope_freqs.weight").astype(np.float64).reshape(-1)
    theta = file.number("llama.rope.freq_base") or 10000.0
    factor = float(str(np.float32(stored.max())))
    for original in (8192, 4096, 16384, 32768):
        made = _llama3_factors(theta, len(stored), factor, original)
        if np.allclose(made, stored, rtol=1e-5):
            return {
                "rope_type": "llama3", "factor": factor, "low_freq_factor": _LOW, "high_freq_factor": _HIGH,
                "original_max_position_embeddings": original,
            }  # fmt: skip
    if np.all(stored == 1):
        return {"rope_type": "default"}
    raise ModelError(
        "its rotary positions are scaled by factors (rope_freqs.weight) that are none of Llama 3's",
        where=str(file.path),
        hint="give the checkpoint in safetensors",
    )


def _llama3_factors(theta: float, many: int, factor: float, original: int) -> Any:
    """What each frequency is divided by; `many` is half the head's width."""
    lengths = 2 * np.pi * theta ** (np.arange(many) / many)
    smooth = (original / lengths - _LOW) / (_HIGH - _LOW)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(lengths < original / _HIGH, 1, np.where(lengths > original / _LOW, factor, between))


def _even_width(config: Config) -> int:
    """Numbers of a head, where nothing else is said."""
    return int(config["hidden_size"] // config["num_attention_heads"])


def _partial(config: Config, file: GgufFile) -> None:
    """The part of a head that is rotated."""
    width = _even_width(config)
    turned = file.number(f"{_prefix(file)}rope.dimension_count") or width
    config.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0})
    config["rope_parameters"]["partial_rotary_factor"] = turned / width


def _check_rotation(config: Config, file: GgufFile) -> None:
    """Refuse a part of a head that is rotated and that the model's class has no setting for."""
    turned = file.number(f"{_prefix(file)}rope.dimension_count")
    if turned is None:
        return
    width = config.get("head_dim") or _even_width(config)
    part = config.get("rope_parameters", {}).get("partial_rotary_factor", 1.0)
    if turned != round(width * part):
        raise ModelError(
            f"it rotates {turned:g} numbers of heads of {width}, which {config['model_type']} does not",
            where=f"{file.path}: rope.dimension_count",
            hint="download it again, or give the checkpoint in safetensors",
        )


def _scale_queries(config: Config, layers_of_widest: int) -> None:
    """Set the scale of queries, for which a file has no key: llama.cpp takes the head's width, but for 27B."""
    wide = _even_width(config)
    is_widest = config["num_hidden_layers"] == layers_of_widest
    config["query_pre_attn_scalar"] = wide if is_widest else config.get("head_dim", wide)


def _gemma2(config: Config, file: GgufFile) -> None:
    _scale_queries(config, 46)


def _gemma3(config: Config, file: GgufFile) -> None:
    """Layers with a window have a rotation of their own, which is not scaled."""
    _scale_queries(config, 62)
    local = file.number("gemma3.rope.freq_base_swa") or 10000.0
    full = config.get("rope_parameters", {"rope_type": "default", "rope_theta": 1000000.0})
    config["rope_parameters"] = {
        "full_attention": full,
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


def _gpt_oss(config: Config, file: GgufFile) -> None:
    config.setdefault("rope_parameters", {"rope_type": "default"})["truncate"] = False


def _granite_experts(config: Config, file: GgufFile) -> None:
    if "blk.0.ffn_gate_shexp.weight" in file.names():
        raise ModelError(
            "it has shared experts, which partc does not read from GGUF for this architecture",
            where=str(file.path),
            hint="give the checkpoint in safetensors",
        )


_GRANITE = {
    **_RMS,
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
_LAYER_NORM = {"attention.layer_norm_epsilon": "layer_norm_eps"}
ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(
        "llama", {**_RMS, **_HEAD}, {**_ATTENTION_BIAS, **_MLP_BIAS}, permutes=True
    ),
    "mixtral": Architecture(
        "mixtral",
        {**_RMS, **_HEAD, **_LOCAL_EXPERTS},
        fixed={"sliding_window": None}, permutes=True,
    ),
    "qwen2": Architecture("qwen2", _RMS, fixed={"use_sliding_window": False}),
    "qwen3": Architecture("qwen3", {**_RMS, **_HEAD}, _ATTENTION_BIAS, {"use_sliding_window": False}),
    "qwen2moe": Architecture(
        "qwen2_moe",
        {
            **_RMS, **_EXPERTS, "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        fixed={"use_sliding_window": False, "decoder_sparse_step": 1, "norm_topk_prob": False},
    ),
    "qwen3moe": Architecture(
        "qwen3_moe",
        {**_RMS, **_HEAD, **_EXPERTS, "expert_feed_forward_length": "moe_intermediate_size"},
        _ATTENTION_BIAS,
        # llama.cpp always normalises what the router gives.
        {"use_sliding_window": False, "decoder_sparse_step": 1, "norm_topk_prob": True},
    ),
    "gemma": Architecture("gemma", {**_RMS, **_HEAD}, shifts_norms=True),
    "gemma2": Architecture(
        "gemma2",
        {
            **_RMS, **_HEAD, **_WINDOW, "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        finish=_gemma2, shifts_norms=True,
    ),
    "gemma3": Architecture("gemma3_text", {**_RMS, **_HEAD, **_WINDOW}, finish=_gemma3, shifts_norms=True),
    "phi2": Architecture("phi", _LAYER_NORM, finish=_partial),
    "phi3": Architecture("phi3", {**_RMS, **_WINDOW}, finish=_partial),
    "stablelm": Architecture(
        "stablelm",
        {**_LAYER_NORM, "use_parallel_residual": "use_parallel_residual"},
        {"use_qkv_bias": "blk.0.attn_q.bias", "qk_layernorm": "blk.0.attn_q_norm.weight"},
        finish=_partial,
    ),
    "starcoder2": Architecture(
        "starcoder2",
        {**_WINDOW, "attention.layer_norm_epsilon": "norm_epsilon"},
        {"use_bias": "blk.0.attn_q.bias"},
        {"sliding_window": None},
    ),
    "gpt2": Architecture(
        "gpt2",
        {
            "block_count": "n_layer", "embedding_length": "n_embd", "feed_forward_length": "n_inner",
            "attention.head_count": "n_head", "context_length": "n_positions",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        turned=r"\.(c_attn|c_proj|c_fc)\.weight$", has_common=False,
    ),
    "olmo": Architecture("olmo", {"attention.clamp_kqv": "clip_qkv"}, permutes=True),
    "olmo2": Architecture("olmo2", _RMS),
    "olmoe": Architecture("olmoe", {**_RMS, **_EXPERTS}, fixed={"norm_topk_prob": False}),
    "granite": Architecture("granite", _GRANITE, {**_ATTENTION_BIAS, **_MLP_BIAS}, permutes=True),
    "granitemoe": Architecture(
        "granitemoe",
        {**_GRANITE, **_LOCAL_EXPERTS},
        _ATTENTION_BIAS, finish=_granite_experts, permutes=True,
    ),
    "command-r": Architecture(
        "cohere",
        {**_LAYER_NORM, "logit_scale": "logit_scale"},
        {"use_qk_norm": "blk.0.attn_q_norm.weight"},
    ),
    "smollm3": Architecture(
        "smollm3", _RMS, {**_ATTENTION_BIAS, **_MLP_BIAS}, {"use_sliding_window": False}, permutes=True
    ),
    "gpt-oss": Architecture(
        "gpt_oss",
        {
            **_RMS, **_HEAD, **_WINDOW, **_LOCAL_EXPERTS,
            "expert_feed_forward_length": "intermediate_size",
        },
        finish=_gpt_oss,
    ),
    "seed_oss": Architecture(
        "seed_oss", {**_RMS, **_HEAD},
        {**_ATTENTION_BIAS, **_MLP_BIAS, "attention_out_bias": "blk.0.attn_output.bias"},
    ),
    "arcee": Architecture("arcee", {**_RMS, **_HEAD}, {**_ATTENTION_BIAS, **_MLP_BIAS}, permutes=True),
}  # fmt: skip
"""Architecture of llama.cpp (a Llama with experts: `mixtral`) → how it becomes a model of transformers."""
