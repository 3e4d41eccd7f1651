"""Tiny encoders of pictures and sound, the whole way: a checkpoint on disk, compiled, run as a ring, compared.

A tiny random model can hide a fault, so a family counts only after its negative controls: a compile without attention
(where the model has any) and another picture or sound must change the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.dtypes import Array
from partc.frontend.trace.export import MODEL_CLASSES
from partc.ir.graph import Constant, Module, Node, Value
from partc.ir.privacy import raw_values
from partc.ir.text import parse_module
from partc.verifier.compare import beside, difference, join_steps, largest
from partc.verifier.reference import open_reference
from partc.verifier.report import QUANTIZED_TOLERANCE
from tests.families.check import compile_ring, devices_file, simplified
from tests.families.ring import DirectRing
from tests.families.tiny import initialise, quiet

_IMAGE = {"image_size": 32, "patch_size": 8, "num_labels": 3}
_LAYERS = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
_VIT = {**_LAYERS, **_IMAGE}
_WAVE = {
    **_LAYERS, "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2), "num_labels": 3,
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16, "vocab_size": 20,
}  # fmt: skip
_WINDOWS = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "num_labels": 3}
_STAGES = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 2, 1], "num_labels": 3}
_PYRAMID = {
    "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4],
    "image_size": 64, "num_labels": 3,
}  # fmt: skip
_SPECTROGRAM = {
    **_LAYERS, "patch_size": 8, "max_length": 64, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8,
    "num_labels": 3,
}  # fmt: skip
_ENCODER_DECODER = {
    "d_model": 32, "encoder_layers": 4, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_labels": 3,
}  # fmt: skip
_DETR = {
    **_ENCODER_DECODER, "num_queries": 5, "use_timm_backbone": False, "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": {"model_type": "resnet", "embedding_size": 16, **_STAGES, "out_features": ["stage4"]},
}  # fmt: skip
_WHISPER = {
    **_ENCODER_DECODER, "max_source_positions": 40, "num_mel_bins": 16, "vocab_size": 50,
    "classifier_proj_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
FEATURES, IMAGE, AUDIO = "feature-extraction", "image-classification", "audio-classification"
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": (IMAGE, _VIT),
    "deit": (IMAGE, {**_VIT, "architectures": ["DeiTForImageClassification"]}),  # one of several that it has
    "beit": (IMAGE, _VIT),
    "data2vec-vision": (IMAGE, _VIT),
    "dinov2": (IMAGE, _VIT),
    "dinov2_with_registers": (IMAGE, _VIT),
    "dinov3_vit": (FEATURES, _VIT),
    "ijepa": (IMAGE, _VIT),
    "vit_msn": (IMAGE, _VIT),
    "clip_vision_model": (FEATURES, _VIT),
    "siglip_vision_model": (FEATURES, _VIT),
    "yolos": (FEATURES, {**_VIT, "image_size": [32, 32], "num_detection_tokens": 5}),
    "swin": (IMAGE, {**_WINDOWS, "image_size": 32, "patch_size": 4}),
    "swinv2": (IMAGE, {**_WINDOWS, "image_size": 32, "patch_size": 4}),
    "segformer": (IMAGE, {**_PYRAMID, "decoder_hidden_size": 32}),
    "pvt": (IMAGE, _PYRAMID),
    "convnext": (IMAGE, {**_STAGES, "image_size": 64}),
    "convnextv2": (IMAGE, {**_STAGES, "image_size": 64}),
    "resnet": (IMAGE, {**_STAGES, "embedding_size": 16}),
    "regnet": (IMAGE, {**_STAGES, "embedding_size": 16, "groups_width": 8}),
    "detr": (FEATURES, _DETR),
    "videomae": (FEATURES, {**_VIT, "num_frames": 4, "tubelet_size": 2}),
    "timesformer": (FEATURES, {**_VIT, "num_frames": 3}),
    "wav2vec2": (AUDIO, _WAVE),
    "hubert": (AUDIO, _WAVE),
    "wavlm": (AUDIO, _WAVE),
    "unispeech": (AUDIO, _WAVE),
    "unispeech-sat": (AUDIO, _WAVE),
    "data2vec-audio": (AUDIO, _WAVE),
    "audio-spectrogram-transformer": (AUDIO, _SPECTROGRAM),
    "whisper": (AUDIO, _WHISPER),
}
"""Model type → the task and the fields of a tiny config."""
TOLERANCE = 1e-4
"""Of outputs and of values at cuts, per largest value."""
_SIDE, _SAMPLES = 64, 800
"""Sizes of pictures and of sound where a config has none."""
_CHANGED = 1e-3
"""A control must change the outputs by so much, per largest value."""


@dataclass(frozen=True)
class Result:
    """The findings about a family."""

    devices: int
    error: float
    """The largest of outputs and cuts, per largest value; inf where a cut is nothing that the original computes."""
    leaked: float
    """The share of the numbers that crossed links which are numbers of the picture or of the sound."""
    controls: Mapping[str, bool] = field(default_factory=dict)
    """Control → whether it changed the outputs, as it must."""
    tolerance: float = TOLERANCE
    """Of the error; a quantised model rounds activations to 8 bits, and may round otherwise on both sides of a cut."""

    @property
    def counts(self) -> bool:
        """Whether the family is compiled correctly, and the test would have noticed if it were not."""
        fits = self.devices == 3 and self.error <= self.tolerance and self.leaked <= 0.01
        return fits and bool(self.controls) and all(self.controls.values())

    @property
    def detail(self) -> str:
        """The reason why it does not count."""
        if self.devices != 3:
            return f"it is cut for {self.devices} devices"
        if self.leaked > 0.01:
            return f"{self.leaked:.1%} of the numbers that cross links are those of the input"
        return f"an error of {self.error:.1e}"


def check_tensors(family: str, folder: Path, target: str = "ort", quantize: str | None = None) -> Result:
    """Compile and compare one family, with its negative controls.

    Args:
        family: of `FAMILIES`.
        folder: an empty one.
        target: of all devices.
        quantize: int8 or int4; compared with the uncut model of the same weights.

    Raises:
        UserError: partc refuses the model.
    """
    config = save_family(family, folder / "checkpoint")
    text = simplified(config, quantize)
    ring = compile_ring(text, folder / "build", devices_file(folder, 3, (target,)))
    first, other = (_drawn(ring, seed) for seed in (0, 1))
    found, trace = ring.outputs(first), ring.trace[1]
    crossed = {place: array for place, array in join_steps(trace).items() if place[1] != place[2]}
    if quantize is None:
        reference = open_reference(config)
        right: Mapping[str, Array] = reference.outputs(first)
        seen = reference.counterparts(first, {name for name, _, _ in crossed})
        known = {place: array for place, array in crossed.items() if place[0] in seen}
        assert known, "no value that crosses has a counterpart"
        error = max(_relative(*beside(array, seen[place[0]])) for place, array in known.items())
    else:
        right = compile_ring(text, folder / "uncut", devices_file(folder, 1, (target,))).outputs(first)
        error = 0.0
    error = max([error, *(_error(array, right[name]) for name, array in found.items())])
    controls = {"input": _error_of(ring.outputs(other), right) > _CHANGED}
    if quantize is not None:
        plain = compile_ring(simplified(config), folder / "plain", devices_file(folder, 1, (target,)))
        controls["quantised"] = _error_of(plain.outputs(first), right) > _CHANGED / 10
    if "partc.Attention" in text:
        spoilt = compile_ring(text, folder / "spoilt", devices_file(folder, 1, (target,)), _no_attention)
        controls["attention"] = _error_of(spoilt.outputs(first), right) > _CHANGED
    tolerance = TOLERANCE if quantize is None else QUANTIZED_TOLERANCE
    return Result(len(ring.roles), error, _leaked(first, crossed, text), controls, tolerance)


def save_family(family: str, folder: Path) -> ModelConfig:
    """A tiny checkpoint as transformers writes one."""
    task, fields = FAMILIES[family]
    with quiet():
        torch.manual_seed(0)
        network = MODEL_CLASSES[task].from_config(CONFIG_MAPPING[family](**fields)).eval()
        initialise(network, 0)
        _soften(network)
        network.save_pretrained(folder)
    picture = network.main_input_name == "pixel_values" and not hasattr(network.config, "image_size")
    return ModelConfig(
        CheckpointFolder(folder),
        task=task,
        max_batch=2,
        image_size=(_SIDE, _SIDE) if picture else None,
        samples=_SAMPLES if network.main_input_name == "input_values" else None,
    )


def _soften(network: torch.nn.Module) -> None:
    """Draw kernels of convolutions for all that they add up, not for one row of it: deep stacks of them overflow."""
    for module in network.modules():
        weight = getattr(module, "weight", None)
        if type(module).__name__.startswith("Conv") and isinstance(weight, torch.nn.Parameter):
            with torch.no_grad():
                weight.mul_((weight.shape[-1] / weight[0].numel()) ** 0.5)


def _drawn(ring: DirectRing, seed: int) -> dict[str, Array]:
    """A batch of two."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal([2 if size == "batch" else int(size) for size in kind.shape], np.float32)
        for name, kind in ring.roles[ring.source].inputs.items()
    }


def _leaked(given: Mapping[str, Array], crossed: Mapping[tuple[str, str, str], Array], text: str) -> float:
    """See `Result.leaked`; 1 where a value crosses that the compiler itself takes for raw."""
    raw = {value.name for value in raw_values(parse_module(text).graph)}
    if raw & {name for name, _, _ in crossed}:
        return 1.0
    (picture,) = given.values()
    numbers = np.concatenate([array.reshape(-1) for array in crossed.values()])
    return float(np.isin(numbers, picture).mean())  # a few are equal by chance


def _error_of(found: Mapping[str, Array], right: Mapping[str, Array]) -> float:
    return max(_error(array, right[name]) for name, array in found.items())


def _error(found: Array, right: Array) -> float:
    return _relative(difference(found, right), largest(right))


def _relative(error: float, size: float) -> float:
    return error / max(1.0, size)


def _no_attention(module: Module) -> None:
    """The values of every attention are zero, so that it adds nothing."""
    for node in list(module.graph.nodes):
        value = node.inputs[2] if node.op == "partc.Attention" else None
        if value is None:
            continue
        zero = Constant(f"{node.name}.zero", value.dtype, (), array=np.zeros((), np.float32))
        nothing = Value(f"{node.name}.nothing", value.dtype, value.shape)
        module.graph.nodes.insert(module.graph.nodes.index(node), Node("Mul", [value, zero], [nothing]))
        node.inputs[2] = nothing
