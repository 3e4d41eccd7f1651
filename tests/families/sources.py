"""Tiny encoder-decoders, the whole way: a checkpoint on disk, compiled, run as a ring, compared with transformers.

A tiny random model can hide a fault, so a family counts only after its negative controls: another source, and a compile
whose decoder sees nothing of its own tokens or of the source, must change the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING

from partc.config.model import CheckpointFolder, ModelConfig
from partc.frontend.cache import load_cached
from partc.frontend.export import MODEL_CLASSES
from partc.ir.graph import Constant, Module, Node, Value
from partc.ir.once import once_nodes
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module, print_module
from partc.pipeline.default import PHASES
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass
from partc.verify.compare import join_steps, nearest, shapes_to_watch
from partc.verify.reference import Reference, open_reference
from tests.families.check import CONTROLS, compile_ring, devices_file
from tests.families.ring import DirectRing
from tests.families.tiny import initialise, quiet

TEXT, SPEECH = "text2text-generation", "automatic-speech-recognition"
SOURCES = (1, 7, 33)
"""Tokens of the texts that are read."""
TOKENS = 24
TOLERANCE = 1e-4
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


@dataclass(frozen=True)
class Result:
    """The findings about a family."""

    devices: int
    fault: str = ""
    """What differs; nothing: an empty text."""
    controls: dict[str, bool] = field(default_factory=dict)
    """Control → whether it changed the tokens, as it must."""

    @property
    def counts(self) -> bool:
        """Whether the family is compiled correctly, and the test would have noticed if it were not."""
        return not self.fault and self.devices == 3 and bool(self.controls) and all(self.controls.values())

    @property
    def detail(self) -> str:
        """The reason why it does not count."""
        return self.fault or f"it is cut for {self.devices} devices"


Request = Any
"""The token ids of a text, or the tensors of a sound."""


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
    config = save_family(family, folder / "checkpoint", 1 if target == "tvm" else 2)
    text = simplified(config, quantize)
    ring = compile_ring(text, folder / "build", devices_file(folder, 3, (target,)))
    requests = [_drawn(ring, number) for number in range(len(SOURCES))]
    one = devices_file(folder, 1, (target,))
    if quantize is None:
        reference = open_reference(config, ring.roles[ring.source].model.start_tokens)
        expected = [reference.generate(request, TOKENS) for request in requests]
    else:
        reference = None
        expected = generate(compile_ring(text, folder / "uncut", one), requests)
    fault = _fault(ring, requests, expected, reference)
    controls = {"source": len({tuple(row) for row in expected}) == len(expected)}
    spoilt: dict[str, Callable[[Module], None]] = {"source unread": without_source}
    module = parse_module(text)
    spoilt |= {name: control.mutate for name, control in CONTROLS.items() if control.applies(module)}
    for name, mutate in spoilt.items():
        found = generate(compile_ring(text, folder / name.replace(" ", "-"), one, mutate), requests)
        controls[name] = found != expected
    return Result(len(ring.roles), fault, controls)


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


def _drawn(ring: DirectRing, number: int) -> Request:
    role = ring.roles[ring.source]
    rng = np.random.default_rng([7, number])
    if role.takes_tokens:
        return [int(token) for token in rng.integers(3, _VOCABULARY, SOURCES[number])]
    shapes = {name: map(int, kind.shape[1:]) for name, kind in role.inputs.items() if kind.dtype == "float32"}
    return {name: rng.standard_normal((1, *shape)).astype(np.float32) for name, shape in shapes.items()}


def generate(ring: DirectRing, requests: Sequence[Request]) -> list[list[int]]:
    """`TOKENS` greedy tokens for every request, one after the other."""
    return [_answer(ring, [request])[0] for request in requests]


def _answer(ring: DirectRing, requests: Sequence[Request]) -> list[list[int]]:
    """The tokens of requests that are in flight at once."""
    if isinstance(requests[0], dict):
        return [batch[0] for batch in ring.generate_from(requests, TOKENS)]
    return [batch[0] for batch in ring.generate_together([[request] for request in requests], TOKENS)]


def _fault(
    ring: DirectRing,
    requests: Sequence[Request],
    expected: list[list[int]],
    reference: Reference | None,
) -> str:
    found = generate(ring, requests)
    if found != expected:
        same = [
            sum(a == b for a, b in zip(left, right, strict=True))
            for left, right in zip(found, expected, strict=True)
        ]
        return f"{same} of {TOKENS} tokens equal"
    if reference is not None:
        traces = [ring.trace[number + 1] for number in range(len(requests))]
        pairs = zip(traces, requests, expected, strict=True)
        error = max(largest_error(trace, reference, request, right) for trace, request, right in pairs)
        if error > TOLERANCE:
            return f"tokens equal, but an error of {error:.1e}"
    if _answer(ring, requests) != expected:
        return "together, other tokens"
    if not isinstance(requests[0], dict) and ring.roles[ring.source].model.max_batch > 1:
        batch = ring.generate([requests[1], requests[2]], TOKENS)
        if batch != expected[1:]:
            return "in one batch, other tokens"
    return ""


def largest_error(trace: Any, reference: Reference, request: Request, tokens: Sequence[int]) -> float:
    """The largest error of the logits and of every value that crossed a link, per largest value."""
    inputs = reference.whole(request, tokens)
    floats = {place: array for place, array in join_steps(trace).items() if array.dtype == np.float32}
    right = reference.outputs(inputs)["logits"][:, -len(tokens) :]
    (logits,) = (array for (_, peer, device), array in floats.items() if peer == device)
    error = float(np.abs(logits - right).max()) / max(1.0, float(np.abs(right).max()))
    rows = inputs["decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"].shape[1]
    seen = reference.activations(inputs, shapes_to_watch(floats.values(), rows))
    for (name, peer, device), array in floats.items():
        if peer != device:
            difference, size = nearest(array, seen)
            if not np.isfinite(difference):
                raise AssertionError(f"{name} {array.shape} is nothing that transformers computes")
            error = max(error, difference / max(1.0, size))
    return error


def simplified(config: ModelConfig, quantize: str | None = None) -> str:
    """The IR of a model behind the passes that make it simpler."""
    module = load_cached(config)
    whole = None if quantize is None else Quantization(quantize, quantize, quantize)
    module.info = replace(module.info, quantize=whole)
    run_passes(module, [load_pass(text) for text in PHASES["simplify"]])
    return print_module(module)


def without_source(module: Module) -> None:
    """The decoder reads zeros instead of what the encoder makes."""
    graph = module.graph
    once = once_nodes(graph)
    for node in list(graph.nodes):
        if node in once:
            continue
        for place, value in enumerate(node.inputs):
            made = value is not None and value.producer in once and value.dtype == "f32"
            if made and value is not None and len(value.shape or ()) > 1:
                zero = Constant(f"{value.name}.{node.name}.zero", "f32", (), array=np.zeros((), np.float32))
                product = Node(
                    "Mul", [value, zero], [Value(f"{value.name}.{node.name}.none", "f32", value.shape)]
                )
                graph.nodes.insert(graph.nodes.index(node), product)
                node.inputs[place] = product.outputs[0]
