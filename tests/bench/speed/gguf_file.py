"""A Llama checkpoint as GGUF files, for llama.cpp: float32, and what llama.cpp makes of that by itself.

    python -m tests.bench.speed.gguf_file CHECKPOINT OUT.gguf [Q8_0|Q4_0|Q4_K_S|IQ4_NL]

Written for the random Llamas of this bench: the vocabulary means nothing, and is there since llama.cpp's server wants
one. Needs the packages gguf and, for formats that are not float32, llama-cpp-python; `llama-quantize` does the same.
"""

from __future__ import annotations

import ctypes
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.llamas import WEIGHTS

FORMATS = {"Q4_0": 2, "Q8_0": 7, "Q4_K_S": 14, "IQ4_NL": 25}
"""Name → `llama_ftype` of llama.h. Q4_K_S has fewer layers in more bits than Q4_K_M, so it is the faster of the two."""
LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
OTHER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(checkpoint: Path, out: Path) -> None:
    """All in float32."""
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    writer: Any = import_module("gguf").GGUFWriter(str(out), "llama")
    _add_settings(writer, config)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in load_file(checkpoint / WEIGHTS).items():
        found = gguf_name(name)
        kind = found.split(".")[-2]
        writer.add_tensor(found, interleaved(tensor, heads[kind]) if kind in heads else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` → `blk.3.ffn_up.weight`."""
    base = name.removesuffix(".weight")
    if base in OTHER:
        return f"{OTHER[base]}.weight"
    _, _, layer, kind = base.split(".", 3)
    return f"blk.{layer}.{LAYER[kind]}.weight"


def interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of q or k in the order of llama.cpp, which turns neighbours where transformers turns the two halves.

    As `LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py.
    """
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


def _add_settings(writer: Any, config: dict[str, Any]) -> None:
    head = config["hidden_size"] // config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(rope_theta(config))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(0)
    _add_vocabulary(writer, config["vocab_size"])


def _add_vocabulary(writer: Any, size: int) -> None:
    """Three special tokens, one for each byte, and words that are numbers: SentencePiece's order, which is Llama's."""
    special, byte = ["<unk>", "<s>", "</s>"], [f"<0x{value:02X}>" for value in range(256)]
    words = [f"\u2581{number}" for number in range(len(special) + len(byte), size)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *byte, *words])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([2, 3, 3, *[6] * len(byte), *[1] * len(words)])  # unknown, control, byte, normal
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)


def rope_theta(config: dict[str, Any]) -> float:
    """The base of rotary embeddings, in a configuration of transformers before version 5 or since."""
    return float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])


def quantize(source: Path, out: Path, kind: str) -> None:
    """As llama-quantize does, embeddings and head included, where llama.cpp by itself keeps the head in Q6_K.

    Raises:
        SystemExit: llama.cpp could not.
    """
    llama: Any = import_module("llama_cpp")
    settings = llama.llama_model_quantize_default_params()
    settings.ftype = FORMATS[kind]
    if llama.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(settings)) != 0:
        raise SystemExit(f"llama.cpp did not quantise {source}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        quantize(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
