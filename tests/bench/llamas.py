"""Llamas with random weights, for benches: shapes, a tokenizer, and what a token of them reads."""

from __future__ import annotations

import json
from pathlib import Path

SHAPES: dict[str, dict[str, int]] = {
    "110M": {
        "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 2048, "num_attention_heads": 12,
        "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
    },
    "1.1B": {
        "hidden_size": 2048, "num_hidden_layers": 22, "intermediate_size": 5632, "num_attention_heads": 32,
        "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
    },
}  # fmt: skip
"""Name → what `LlamaConfig` takes. Embedding and head are not tied."""
WEIGHTS = "model.safetensors"


def add_tokenizer(checkpoint: Path, vocabulary: int) -> None:
    """A tokenizer of words `0` … for tools that refuse a model without one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {str(number): number for number in range(vocabulary)}
    Tokenizer(WordLevel(words, unk_token="0")).save(str(checkpoint / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "0", "eos_token": "2"}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))


def matrix_values(model: str) -> int:
    """The number of weights in the matrices that every token is multiplied by; O(1).

    The table of embeddings is left out, of which one row is read, and the norms, which are small.
    """
    shape = SHAPES[model]
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    cached = hidden * shape["num_key_value_heads"] // shape["num_attention_heads"]
    layer = 2 * hidden * (hidden + cached) + 3 * hidden * shape["intermediate_size"]
    return layers * layer + hidden * shape["vocab_size"]


def head_size(model: str) -> int:
    """The width of a head."""
    return SHAPES[model]["hidden_size"] // SHAPES[model]["num_attention_heads"]


def cached_values(model: str, context: int) -> int:
    """The number of keys and values of `context` tokens, in all layers."""
    shape = SHAPES[model]
    return 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head_size(model) * context
