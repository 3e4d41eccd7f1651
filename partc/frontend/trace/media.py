"""A picture or a sound that a model reads among its tokens: which tensors it is, and which facts go with them.

The checkpoint's own preprocessor knows: it is asked for a blank picture of `image_size`, or for silence. Numbers that
it makes are inputs of a request; whole numbers (grids, sizes, masks) are the same for all pictures of that size, so
they are facts, known when the model is traced. A model without a preprocessor takes one picture [1, channels, height,
width], or the features of one sound [1, bins, frames], with the sizes of its config.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel

from partc.errors import ModelError
from partc.extras import install_command
from partc.format.media import USUAL_SIZE, argument_of, blank_picture
from partc.format.names import PREPROCESSOR_FILES
from partc.format.tasks import AUDIO_TEXT, IMAGE_TEXT
from partc.frontend.trace.tensors import TensorSizes, features_shape, picture_shape

_TOKENS = {
    IMAGE_TEXT: ("image_token_id", "image_token_index"),
    AUDIO_TEXT: ("audio_token_id", "audio_token_index"),
}
_OTHER_SIZES = ((96, 224), (1200, 500))
"""Heights and widths of further blank pictures: they show whether the preprocessor brings all to one size."""


@dataclass(frozen=True)
class Media:
    """One picture or one sound."""

    token: int
    """The token in whose place a row of features goes."""
    tensors: Mapping[str, tuple[int, ...]]
    """Argument of the model → shape; float32."""
    facts: Mapping[str, torch.Tensor]
    """Argument of the model → the same for every request."""
    rows: int = 0
    """Rows of features that it becomes, so that it takes so many tokens of a prompt; 0: not counted yet."""
    size: tuple[int, int] | None = None
    """Height and width to which pictures are brought before the preprocessor; None: it does so itself."""


def media_input(
    network: type[PreTrainedModel],
    config: PretrainedConfig,
    task: str,
    sizes: TensorSizes,
) -> Media:
    """The picture or the sound that a model of this class takes besides tokens.

    Raises:
        ModelError: it takes none, or its size is not known, or the preprocessor cannot be made.
    """
    accepted = tuple(inspect.signature(network.forward).parameters)
    token = _token(config, task)
    folder = sizes.folder
    if folder is not None and any((folder / name).is_file() for name in PREPROCESSOR_FILES):
        made, size = _ask(folder, task, sizes)
        return Media(token, *_by_argument(made, accepted, config), size=size)
    is_image = task == IMAGE_TEXT
    usual = "pixel_values" if is_image else "input_features"
    name = argument_of(usual, accepted)
    if name is None:
        raise ModelError(f"its model takes no {usual}", where=f"model_type {config.model_type}", hint=_HINT)
    if is_image:
        return Media(token, {name: (1, *picture_shape(config, sizes))}, {})
    shape = (1, *features_shape(getattr(config, "audio_config", config), sizes))
    frames = torch.ones(1, shape[-1], dtype=torch.int64)
    return Media(token, {name: shape}, {mask: frames for mask in accepted if _is_mask_of_sound(mask)})


_HINT = "use a checkpoint whose architecture reads pictures or sound among its text, and the task of that"


def _token(config: PretrainedConfig, task: str) -> int:
    names = _TOKENS[task]
    inner = (getattr(config, name, None) for name in ("vision_config", "audio_config"))
    places = [(each, name) for each in (config, *inner) for name in names]
    found = next((token for each, name in places if (token := getattr(each, name, None)) is not None), None)
    if found is None:
        raise ModelError(
            f"its config has no {names[0]}: nothing says where a picture or a sound goes in the text",
            where=f"model_type {config.model_type}",
            hint=_HINT,
        )
    return int(found)


def _is_mask_of_sound(name: str) -> bool:
    return name.endswith("_mask") and ("feature" in name or "audio" in name)


def _by_argument(
    made: Mapping[str, Any], accepted: tuple[str, ...], config: PretrainedConfig
) -> tuple[dict[str, tuple[int, ...]], dict[str, torch.Tensor]]:
    """What a preprocessor made, by the arguments of the model; what no argument takes is left out."""
    tensors: dict[str, tuple[int, ...]] = {}
    facts: dict[str, torch.Tensor] = {}
    for key, value in made.items():
        array = np.asarray(value)
        name = _argument(key, accepted)
        if name is None:
            continue
        if array.dtype.kind == "f":
            tensors[name] = array.shape
        elif array.ndim:
            facts[name] = torch.from_numpy(np.ascontiguousarray(array))
    if not tensors:
        raise ModelError(
            f"its preprocessor makes {', '.join(made)}, none of which its model takes",
            where=f"model_type {config.model_type}",
            hint="is the preprocessor_config.json that of this checkpoint?",
        )
    return tensors, facts


def _argument(key: str, accepted: tuple[str, ...]) -> str | None:
    """The argument for what a preprocessor calls `key`; feature extractors say `attention_mask` of their own mask."""
    if key == "attention_mask":
        return next((name for name in accepted if _is_mask_of_sound(name)), None)
    return argument_of(key, accepted)


def _ask(folder: Path, task: str, sizes: TensorSizes) -> tuple[Mapping[str, Any], tuple[int, int] | None]:
    """What the preprocessor makes of a blank picture or of silence; and the size that pictures must have before."""
    process = _preprocessor(folder, task)
    if task != IMAGE_TEXT:
        samples = sizes.samples or getattr(process, "n_samples", None)
        if samples is None:
            raise ModelError(
                "its preprocessor does not say how long a sound is",
                where=str(folder),
                hint="write `samples: 160000` in model.yaml: the length in samples, here ten seconds at 16 kHz",
            )
        silence = np.zeros(samples, np.float32)
        options = {"sampling_rate": process.sampling_rate, "return_tensors": "np", "padding": "max_length"}
        return process(silence, return_attention_mask=True, **options), None
    size = sizes.image_size
    made, *others = (
        process(blank_picture(each), return_tensors="np") for each in (size or USUAL_SIZE, *_OTHER_SIZES)
    )
    if all(_is_same(made, other) for other in others):
        return made, None
    if size is None:
        raise ModelError(
            "its preprocessor makes more of a large picture than of a small one",
            where=str(folder),
            hint="write `image_size: 448` in model.yaml, or [height, width]: pictures are brought to that size",
        )
    return made, size


def _is_same(made: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two pictures have tensors of the same sizes, and the same facts."""
    pairs = [(np.asarray(made[name]), np.asarray(other[name])) for name in made]
    return all(a.shape == b.shape and (a.dtype.kind == "f" or np.array_equal(a, b)) for a, b in pairs)


def _preprocessor(folder: Path, task: str) -> Any:
    from transformers import AutoFeatureExtractor, AutoImageProcessor

    kind = AutoImageProcessor if task == IMAGE_TEXT else AutoFeatureExtractor
    try:
        return kind.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever transformers raises for a config that it cannot read
        raise ModelError(
            f"transformers cannot make the preprocessor: {' '.join(str(error).split())[:200]}",
            where=str(folder),
            hint=f"install what it needs: {install_command('vision')}",
        ) from error
