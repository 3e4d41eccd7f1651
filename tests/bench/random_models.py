"""Models with random weights, for the speed bench: Llamas, and two whose states a token rewrites as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import llamas

VOCABULARY = 32000
MAMBA2: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 24, "num_heads": 24, "head_dim": 64, "state_size": 128, "n_groups": 1,
    "vocab_size": VOCABULARY, "initializer_range": 0.02,
}  # fmt: skip
"""Arguments of `Mamba2Config`: the sizes of the published Mamba 2 of 130M, whose embedding and head are tied.

With its default of 0.1 for `initializer_range`, rounding to int4 alone puts logits off by 1.2 of their size; 0.6 so."""
DELTA: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 1536, "num_attention_heads": 12,
    "num_key_value_heads": 4, "head_dim": 64, "linear_num_key_heads": 6, "linear_num_value_heads": 12,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
}  # fmt: skip
"""Arguments of `Qwen3_5TextConfig`: three layers of the gated delta rule, then one of attention."""


@dataclass(frozen=True)
class RandomModel:
    """A model of the bench, and what a token of it moves."""

    family: str
    """The model type of transformers."""
    config: Mapping[str, Any]
    """Arguments of its configuration. Embedding and head are not tied."""
    matrix_values: int
    """Weights in the matrices that every token is multiplied by; the table of embeddings is left out."""
    row_values: int
    """Numbers that caches keep of a token, in all layers."""
    head: int
    """Numbers of such a row that share a scale, where the cache has 8 bits."""
    state_values: int = 0
    """Numbers that a token reads and writes back: recurrent states and the last rows before convolutions."""

    def make_checkpoint(self, folder: Path) -> None:
        """Random weights of that shape in `folder/checkpoint`."""
        import torch
        from transformers import CONFIG_MAPPING, AutoModelForCausalLM

        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[self.family](**self.config))
        model.save_pretrained(folder / "checkpoint", max_shard_size="100GB")


def _llama(name: str) -> RandomModel:
    rows, head = llamas.cached_values(name, 1), llamas.head_size(name)
    return RandomModel("llama", llamas.SHAPES[name], llamas.matrix_values(name), rows, head)


def _mamba2(config: Mapping[str, Any]) -> RandomModel:
    hidden, heads, state = config["hidden_size"], config["num_heads"], config["state_size"]
    inner = heads * config["head_dim"]
    convolved = inner + 2 * config["n_groups"] * state
    layer = hidden * (inner + convolved + heads) + inner * hidden
    layers = config["num_hidden_layers"]
    states = layers * (inner * state + 3 * convolved)
    return RandomModel("mamba2", config, layers * layer + hidden * config["vocab_size"], 0, 1, states)


def _delta(config: Mapping[str, Any]) -> RandomModel:
    hidden, head, heads = config["hidden_size"], config["head_dim"], config["num_attention_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    cached = 2 * config["num_key_value_heads"] * head
    linear = hidden * (2 * keys + 2 * values + 2 * config["linear_num_value_heads"]) + values * hidden
    attention = hidden * (3 * heads * head + cached)  # queries, their gates, and the way out
    attentions = config["num_hidden_layers"] // 4
    linears = config["num_hidden_layers"] - attentions
    mlps = config["num_hidden_layers"] * 3 * hidden * config["intermediate_size"]
    matrices = linears * linear + attentions * attention + mlps + hidden * config["vocab_size"]
    states = linears * (values * config["linear_key_head_dim"] + 3 * (2 * keys + values))
    return RandomModel("qwen3_5_text", config, matrices, attentions * cached, head, states)


MODELS: Mapping[str, RandomModel] = {
    **{name: _llama(name) for name in llamas.SHAPES},
    "110M-mamba2": _mamba2(MAMBA2),
    "110M-delta": _delta(DELTA),
}
"""Name → model; the Llamas are those of `llamas.py`."""
