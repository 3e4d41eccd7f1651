"""A wide model with random weights, for what a small example cannot show: many long heads, and attention that is sharp.

Its text is drawn from its own distribution, so that perplexity means something; weights and text are those of a seed.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.verifier.passages import Passage
from tests.families.tiny import initialise

LAYERS, VOCABULARY = 6, 4096
_SEED = 0


def make_wide(folder: Path, heads: int, size: int, most: int) -> ModelConfig:
    """Write a checkpoint of `heads` heads of `size` numbers; the model takes a text of `most` tokens and one more."""
    config = LlamaConfig(
        hidden_size=heads * size,
        num_hidden_layers=LAYERS,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=2 * heads * size,
        vocab_size=VOCABULARY,
        max_position_embeddings=most + 1,
    )
    network = LlamaForCausalLM(config)
    initialise(network, _SEED)
    network.save_pretrained(folder)
    return ModelConfig(CheckpointFolder(folder), max_sequence=most + 1, max_requests=1)


def draw_passage(folder: Path, most: int) -> Passage:
    """A text that the model of `folder` draws: a first token, and `most` that it predicts."""
    network = LlamaForCausalLM.from_pretrained(folder).eval()
    torch.manual_seed(_SEED)
    with torch.no_grad():
        ids = network.generate(
            torch.ones(1, 1, dtype=torch.long),
            attention_mask=torch.ones(1, 1, dtype=torch.long),
            do_sample=True, top_k=0, min_new_tokens=most, max_new_tokens=most, pad_token_id=0,
        )  # fmt: skip
    return Passage([int(token) for token in ids[0]])
