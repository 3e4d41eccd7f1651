"""Tiny models that read a picture or a sound among their tokens, the whole way: compiled, run as a ring, compared.

Each is a checkpoint on disk with a preprocessor beside it, as transformers writes both. A family counts only after its
negative controls: another picture, features that are zeros, and a compile whose decoder has no attention, window or
positions must change the tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from transformers import CONFIG_MAPPING

import partc.frontend.trace.media as media_module
from partc.config.model import ModelConfig, Workload
from partc.config.sources import CheckpointFolder
from partc.format.names import PREPROCESSOR_FILES
from partc.format.tasks import AUDIO_TEXT, IMAGE_TEXT, INPUT_IDS
from partc.frontend.trace.export import MODEL_CLASSES
from tests.families.answers import TOKENS, Request, Result, generate, prepare
from tests.families.ring import DirectRing
from tests.families.tiny import initialise, quiet

PROMPTS = ((0, 1), (3, 4), (20, 13))
"""Tokens of text before the picture and behind it."""
TEXT = 7
"""Tokens of a prompt without a picture."""
_VOCABULARY, _PLACEHOLDER = 120, 99

_STAND_IN = "{}"
"""Content of the file of a preprocessor that only a stand-in makes."""


@dataclass(frozen=True)
class Family:
    """A tiny model."""

    config: dict[str, Any]
    preprocessor: tuple[str, dict[str, Any]] | None
    """Class of transformers and its arguments, no name: a stand-in; None: the model's config says enough."""
    image_size: tuple[int, int] | None = None
    """Where the preprocessor makes more of a large picture than of a small one."""
    task: str = IMAGE_TEXT
    scale: float = 0.35


_TEXT = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": _VOCABULARY, "max_position_embeddings": 160, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_LLAMA = {"model_type": "llama", **_TEXT}
_VISION = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_CLIP = {"model_type": "clip_vision_model", "projection_dim": 48, **_VISION}
_SIGLIP = {"model_type": "siglip_vision_model", **_VISION}
_QWEN_VISION = {
    "depth": 3, "num_heads": 4, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
}  # fmt: skip
_WIDE = {"hidden_size": 48, "out_hidden_size": 64, "intermediate_size": 64}
_AXES = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}}
_TOKENS = {
    "image_token_id": _PLACEHOLDER, "video_token_id": 98, "vision_start_token_id": 97, "vision_end_token_id": 96,
}  # fmt: skip
_INDEX = {"image_token_index": _PLACEHOLDER}
_SQUARE = {"size": {"height": 32, "width": 32}}
_CROP = ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}})
_PATCHES = (
    "Qwen2VLImageProcessor",
    {"patch_size": 8, "merge_size": 2, "min_pixels": 256, "max_pixels": 16384},
)
_TILES = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}

FAMILIES: dict[str, Family] = {
    "llava": Family({"text_config": _LLAMA, "vision_config": _CLIP, **_INDEX}, _CROP),
    "vipllava": Family(
        {"text_config": _LLAMA, "vision_config": _CLIP, "vision_feature_layers": [-1, -2], **_INDEX}, _CROP
    ),
    "llava_next": Family(
        {"text_config": _LLAMA, "vision_config": _CLIP, "image_grid_pinpoints": [[32, 64], [64, 32]], **_INDEX},
        ("LlavaNextImageProcessor", {**_CROP[1], "image_grid_pinpoints": [[32, 64], [64, 32]]}),
        (32, 64),
    ),
    "qwen2_vl": Family(
        {"text_config": {**_TEXT, **_AXES}, "vision_config": {"embed_dim": 48, "hidden_size": 64, "mlp_ratio": 2,
                                                              **_QWEN_VISION}, **_TOKENS},
        _PATCHES,
        (32, 48),
    ),
    "qwen2_5_vl": Family(
        {"text_config": {**_TEXT, **_AXES}, "vision_config": {**_WIDE, "window_size": 32, "fullatt_block_indexes": [1],
                                                              **_QWEN_VISION}, **_TOKENS},
        _PATCHES,
        (32, 48),
    ),
    "qwen3_vl": Family(
        {"text_config": {**_TEXT, "head_dim": 16, **_AXES},
         "vision_config": {**_WIDE, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1],
                           **_QWEN_VISION}, **_TOKENS},
        _PATCHES,
        (32, 48),
    ),
    "gemma3": Family(
        {"text_config": {**_TEXT, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16,
                         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
         "vision_config": _SIGLIP, "mm_tokens_per_image": 4, **_INDEX},
        ("Gemma3ImageProcessor", _SQUARE),
    ),
    "paligemma": Family(
        {"text_config": {"model_type": "gemma", "head_dim": 16, **_TEXT}, "vision_config": _SIGLIP,
         "projection_dim": 64, **_INDEX},
        ("SiglipImageProcessor", _SQUARE),
    ),
    "smolvlm": Family(
        {"text_config": _LLAMA, "vision_config": _VISION, "image_token_id": _PLACEHOLDER, "scale_factor": 2},
        ("SmolVLMImageProcessor", _TILES),
        (32, 64),
    ),
    "idefics3": Family(
        {"text_config": _LLAMA, "vision_config": _VISION, "image_token_id": _PLACEHOLDER, "scale_factor": 2},
        ("Idefics3ImageProcessor", _TILES),
        (32, 64),
    ),
    "internvl": Family(
        {"text_config": {"model_type": "qwen2", **_TEXT}, "image_token_id": _PLACEHOLDER, "image_seq_length": 4,
         "vision_config": {**_VISION, "image_size": [32, 32], "patch_size": [8, 8]}},
        ("GotOcr2ImageProcessor", _SQUARE),
    ),
    "mistral3": Family(
        {"text_config": {"model_type": "mistral", "head_dim": 16, **_TEXT}, "spatial_merge_size": 2,
         "vision_config": {"model_type": "pixtral", **_VISION, "image_size": 64, "head_dim": 12}, **_INDEX},
        ("PixtralImageProcessor", {"size": {"longest_edge": 64}, "patch_size": {"height": 8, "width": 8}}),
        (32, 48),
    ),
    "aya_vision": Family(
        {"text_config": {"model_type": "cohere2", **_TEXT}, "vision_config": _SIGLIP, "downsample_factor": 2,
         **_INDEX},
        None,
    ),
    "phi4_multimodal": Family(
        {**_TEXT, "vision_config": {**_VISION, "crop_size": 32, "image_token_id": _PLACEHOLDER},
         "audio_config": {"hidden_size": 32, "intermediate_size": 48, "num_blocks": 2, "num_attention_heads": 4,
                          "audio_token_id": 98, "ext_pw_out_channel": 32, "nemo_conv_channels": 32, "input_size": 16,
                          "depthwise_seperable_out_channel": 32}},
        ("", {}),
    ),
    "qwen2_audio": Family(
        {"text_config": {"model_type": "qwen2", **_TEXT}, "audio_token_index": _PLACEHOLDER,
         "audio_config": {"num_mel_bins": 16, "encoder_layers": 3, "encoder_attention_heads": 4,
                          "encoder_ffn_dim": 64, "d_model": 48, "max_source_positions": 24}},
        ("WhisperFeatureExtractor", {"feature_size": 16, "sampling_rate": 480, "hop_length": 10, "chunk_length": 1,
                                     "n_fft": 64}),
        task=AUDIO_TEXT,
    ),
}  # fmt: skip
"""Model type → its tiny model."""


def _phi4(picture: Any, **_: Any) -> dict[str, Any]:
    """What Phi4MultimodalImageProcessor makes, which needs torchvision: the whole picture, and one crop of it."""
    return {
        "image_pixel_values": np.zeros((1, 2, 3, 32, 32), np.float32),
        "image_sizes": np.array([[32, 32]]),
        "image_attention_mask": np.ones((1, 2, 4, 4), np.int64),
        "num_img_tokens": np.array([13]),
    }


@contextlib.contextmanager
def preprocessors() -> Iterator[None]:
    """Let the one preprocessor that cannot be made here be a stand-in; the others are transformers' own."""
    made = media_module._preprocessor

    def preprocessor(folder: Path, task: str) -> Any:
        is_named = (folder / PREPROCESSOR_FILES[0]).read_text() == _STAND_IN
        return _phi4 if is_named else made(folder, task)

    with mock.patch.object(media_module, "_preprocessor", preprocessor):
        yield


def check_media(family: str, folder: Path, target: str = "ort", quantize: str | None = None) -> Result:
    """Compile and compare one family, with its negative controls.

    Args:
        family: of `FAMILIES`.
        folder: an empty one.
        target: of all devices.
        quantize: int8 or int4; compared with the uncut model of the same weights.

    Raises:
        UserError: partc refuses the model.
    """
    with preprocessors():
        asked = prepare(save_family(family, folder / "checkpoint"), folder, target, quantize, drawn)
    ring = asked.ring
    # Without a picture the ring computes a blank one, and transformers none.
    fault = asked.fault(compared=len(PROMPTS)) or _leaked(ring)
    others = generate(ring, [_with_other_media(request) for request in asked.requests])
    differ = all(a != b for a, b in zip(others[:-1], asked.expected[:-1], strict=True))
    return Result(len(ring.roles), fault, {"media": differ, **asked.controls("media unread")})


def _leaked(ring: DirectRing) -> str:
    """Which inputs of requests left the source so far."""
    crossings = (one for trace in ring.trace.values() for one in trace if one.peer != one.device)
    raw = {name for one in crossings for name in one.values} & {*ring.roles[ring.source].inputs}
    return f"{', '.join(sorted(raw))} left the source" if raw else ""


def save_family(family: str, folder: Path) -> ModelConfig:
    """A tiny checkpoint with its preprocessor, as transformers writes them."""
    tiny = FAMILIES[family]
    with quiet():
        torch.manual_seed(0)
        network = MODEL_CLASSES[tiny.task].from_config(CONFIG_MAPPING[family](**tiny.config)).eval()
        initialise(network, 0, tiny.scale)
        with torch.no_grad():  # an answer never has a placeholder
            network.get_output_embeddings().weight[_PLACEHOLDER] = 0
        network.save_pretrained(folder)
        if tiny.preprocessor is not None and tiny.preprocessor[0]:
            name, options = tiny.preprocessor
            getattr(transformers, name)(**options).save_pretrained(folder)
        elif tiny.preprocessor is not None:
            (folder / PREPROCESSOR_FILES[0]).write_text(_STAND_IN)
    return ModelConfig(
        CheckpointFolder(folder),
        task=tiny.task,
        max_sequence=144,
        max_requests=4,
        workload=Workload(8, TOKENS),
        image_size=tiny.image_size,
    )


def drawn(ring: DirectRing) -> list[Request]:
    """Prompts with pictures of noise, and one without."""
    role = ring.roles[ring.source]
    requests: list[Request] = []
    for number, (before, behind) in enumerate(PROMPTS):
        text = np.random.default_rng([8, number]).integers(3, 96, before + behind)
        ids = [*text[:before], *[_PLACEHOLDER] * role.model.placeholders, *text[before:]]
        requests.append({INPUT_IDS: np.array([ids], np.int64), **_noise(ring, number)})
    return [*requests, {INPUT_IDS: np.random.default_rng(9).integers(3, 96, (1, TEXT))}]


def _noise(ring: DirectRing, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([7, seed])
    given = {name: kind for name, kind in ring.roles[ring.source].inputs.items() if name != INPUT_IDS}
    return {
        name: rng.standard_normal([*map(int, kind.shape)]).astype(np.float32) for name, kind in given.items()
    }


def _with_other_media(request: Request) -> Request:
    return {name: array if name == INPUT_IDS else -array for name, array in request.items()}
