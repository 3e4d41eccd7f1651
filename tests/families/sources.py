"""Tiny encoder-decoders, the whole way: a checkpoint on disk, compiled, run as a ring, compared with transformers.

A tiny random model can hide a fault, so a family counts only after its negative controls: another source, and a compile
whose decoder sees nothing of its own tokens or of the source, must change the tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.frontend.trace.export import MODEL_CLASSES
from tests.families.answers import TOKENS, Answers, Request, Result, prepare
from tests.families.ring import DirectRing
from tests.families.tiny import initialise, quiet

TEXT, SPEECH = "text2text-generation", "automatic-speech-recognition"
SOURCES = (1, 7, 33)
"""Tokens of the texts that are read."""
_VOCABULARY = 97
_SCALES, _EMBEDDINGS = {"d_kv": 0.35, "": 0.2}, 3.0
"""Of matrices, by a key of the config, and of embeddings: sources, tokens and positions must change the answers."""

_T5 = {
    "vocab_size": _VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_decoder_layers": 3,
    "num_heads": 4, "decoder_start_token_id": 0, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}  # fmt: skip
_BART = {
    "vocab_size": _VOCABULARY, "d_model": 64, "encoder_layers": 3, "decoder_layers": 3,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
    "max_position_embeddings": 64, "decoder_start_token_id": 2, "forced_eos_token_id": None,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
_PROPHET = {
    "vocab_size": _VOCABULARY, "hidden_size": 64, "num_encoder_layers": 3, "num_decoder_layers": 3,
    "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96, "max_position_embeddings": 64, "decoder_start_token_id": 2, "ngram": 2,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
_GEMMA = {
    "vocab_size": _VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "tie_word_embeddings": False,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
    "sliding_window": 8, "query_pre_attn_scalar": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
_SPEECH = {**_BART, "num_mel_bins": 16, "max_source_positions": 40, "max_target_positions": 64}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": (TEXT, _T5),
    "mt5": (TEXT, {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "umt5": (TEXT, {**_T5, "feed_forward_proj": "gated-gelu"}),
    "longt5": (TEXT, {**_T5, "local_radius": 4}),
    "switch_transformers": (TEXT, {**_T5, "num_experts": 4, "num_sparse_encoder_layers": 1,
                                   "num_sparse_decoder_layers": 1}),
    "bart": (TEXT, _BART),
    "mbart": (TEXT, _BART),
    "plbart": (TEXT, _BART),
    "mvp": (TEXT, _BART),
    "m2m_100": (TEXT, _BART),
    "nllb-moe": (TEXT, {**_BART, "num_experts": 4, "encoder_sparse_step": 2, "decoder_sparse_step": 2}),
    "pegasus": (TEXT, _BART),
    "pegasus_x": (TEXT, {**_BART, "num_global_tokens": 4, "block_size": 8}),
    "bigbird_pegasus": (TEXT, {**_BART, "attention_type": "original_full"}),
    "marian": (TEXT, {**_BART, "decoder_vocab_size": _VOCABULARY, "bad_words_ids": None}),
    "blenderbot": (TEXT, _BART),
    "blenderbot-small": (TEXT, _BART),
    "prophetnet": (TEXT, _PROPHET),
    "led": (TEXT, {**_BART, "attention_window": 8, "max_encoder_position_embeddings": 64,
                   "max_decoder_position_embeddings": 64}),
    "t5gemma": (TEXT, {"encoder": _GEMMA, "decoder": {**_GEMMA, "cross_attention_hidden_size": 64},
                       "vocab_size": _VOCABULARY, "decoder_start_token_id": 2,
                       "tie_word_embeddings": False}),
    "whisper": (SPEECH, _SPEECH),
    "speech_to_text": (SPEECH, {**_SPEECH, "conv_channels": 32, "input_feat_per_channel": 16}),
    "moonshine": (SPEECH, {"vocab_size": _VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
                           "encoder_num_hidden_layers": 3, "decoder_num_hidden_layers": 3,
                           "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
                           "decoder_start_token_id": 1, "tie_word_embeddings": False}),
}  # fmt: skip
"""Model type → the task and the fields of a tiny config."""


def check_source(family: str, folder: Path, target: str = "ort", quantize: str | None = None) -> Result:
    """Compile and compare one family, with its negative controls.

    Args:
        family: of `FAMILIES`.
        folder: an empty one.
        target: of all devices.
        quantize: int8 or int4; compared with the uncut model of the same weights.

    Raises:
        UserError: partc refuses the model.
    """
    config = save_family(family, folder / "checkpoint", 2 if target == "ort" else 1)
    asked = prepare(config, folder, target, quantize, _drawn)
    fault = asked.fault() or _fault_of_batch(asked)
    differ = len({tuple(row) for row in asked.expected}) == len(asked.expected)
    return Result(len(asked.ring.roles), fault, {"source": differ, **asked.controls("source unread")})


def _fault_of_batch(asked: Answers) -> str:
    """What is wrong with texts of unequal length in one batch."""
    requests, ring = asked.requests, asked.ring
    if isinstance(requests[0], dict) or ring.roles[ring.source].model.max_batch == 1:
        return ""
    batch = ring.generate([requests[1], requests[2]], TOKENS)
    return "" if batch == asked.expected[1:] else "in one batch, other tokens"


def save_family(family: str, folder: Path, max_batch: int) -> ModelConfig:
    """A tiny checkpoint as transformers writes one."""
    task, fields = FAMILIES[family]
    with quiet():
        torch.manual_seed(0)
        network = MODEL_CLASSES[task].from_config(CONFIG_MAPPING[family](**fields)).eval()
        initialise(network, 0, next(scale for key, scale in _SCALES.items() if not key or key in fields))
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if parameter.ndim > 1 and "embed" in name:
                    parameter.mul_(_EMBEDDINGS)
        network.save_pretrained(folder)
    return ModelConfig(
        CheckpointFolder(folder),
        task=task,
        max_sequence=40,
        max_source=48,
        max_batch=max_batch,
        max_requests=3,
        samples=2000 if network.main_input_name == "input_values" else None,
    )


def _drawn(ring: DirectRing) -> list[Request]:
    role = ring.roles[ring.source]
    shapes = {name: map(int, kind.shape[1:]) for name, kind in role.inputs.items() if kind.dtype == "float32"}
    sizes = {name: (1, *shape) for name, shape in shapes.items()}
    drawn: list[Request] = []
    for number, length in enumerate(SOURCES):
        rng = np.random.default_rng([7, number])
        if role.takes_tokens:
            drawn.append([int(token) for token in rng.integers(3, _VOCABULARY, length)])
        else:
            drawn.append({name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()})
    return drawn
