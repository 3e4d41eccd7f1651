"""Models that take pictures or sound: their input is one tensor of floats instead of token ids.

| main input of the model | shape | sizes from |
|---|---|---|
| `pixel_values` | [batch, channels, height, width] | `image_size` of model.yaml, else of config.json |
| `pixel_values` of a model of videos | [batch, frames, channels, height, width] | the same, and `num_frames` |
| `input_values` | [batch, samples] | `samples` of model.yaml |
| `input_values` of a model of spectrograms | [batch, frames, bins] | `max_length`, `num_mel_bins` |
| `input_features` | [batch, bins, frames] | `num_mel_bins`, twice `max_source_positions` |
| `input_features` of channels | [batch, frames, bins] | `max_source_positions`, `input_feat_per_channel` |

Only the batch may change. Nothing here belongs to a family: the name of the input and the keys of the config decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from partc.errors import ModelError
from partc.frontend.trace.complex_pairs import complex_as_pairs
from partc.frontend.trace.tracing import Trace, tracing

VALUES = "values"
"""Name of the tensor while the model is traced."""
TOKENS = "input_ids"
"""Main input of models that read text."""


@dataclass(frozen=True)
class TensorSizes:
    """Sizes that model.yaml gives; None: those of the model's config."""

    image_size: tuple[int, int] | None = None
    """Height and width of a picture, in pixels."""
    samples: int | None = None
    """Length of a piece of sound, in samples."""
    folder: Path | None = None
    """The checkpoint, whose preprocessor may know more; None: random weights."""


@dataclass(frozen=True)
class TensorInput:
    """The tensor that a model takes."""

    name: str
    """`pixel_values`, `input_values` or `input_features`."""
    shape: tuple[int, ...]
    """The sizes of one picture or piece of sound, without the batch."""


def tensor_input(
    network: type[PreTrainedModel], config: PretrainedConfig, given: TensorSizes
) -> TensorInput | None:
    """The tensor that models of this class take; None where they read token ids.

    Raises:
        ModelError: another kind of input, a size that neither model.yaml nor the config says, or one in model.yaml that
            inputs of this kind do not have.
    """
    name = network.main_input_name
    for key in ("image_size", "samples"):
        if getattr(given, key) is not None and key not in _SIZES.get(name, ()):
            raise ModelError(
                f"`{key}` means nothing to this model: its input is {name}",
                where=f"model_type {config.model_type}",
                hint=f"remove `{key}` from model.yaml",
            )
    if name == TOKENS:
        return None
    if name not in _SHAPES:
        raise ModelError(
            f"its input is {name}, and partc takes {', '.join([TOKENS, *_SHAPES])}",
            where=f"model_type {config.model_type}",
            hint="export it to ONNX yourself and compile that file with task: graph",
        )
    return TensorInput(name, _SHAPES[name](config, given))


def picture_shape(config: PretrainedConfig, given: TensorSizes) -> tuple[int, ...]:
    """[channels, height, width] of one picture, or [frames, channels, height, width] of a video."""
    vision = getattr(config, "vision_config", config)
    size = given.image_size or _pair(getattr(vision, "image_size", None))
    if size is None:
        raise ModelError(
            "its config does not say how large a picture is",
            where=f"model_type {config.model_type}",
            hint="write `image_size: 224` in model.yaml, or [height, width]",
        )
    frames = _first(vision, ("num_frames",))
    channels = _first(vision, ("num_channels", "in_channels", "in_chans")) or 3
    return (channels, *size) if frames is None else (frames, channels, *size)


def _pair(size: object) -> tuple[int, int] | None:
    match size:
        case int():
            return size, size
        case [int(height), int(width)] | {"height": int(height), "width": int(width)}:
            return height, width
        case _:
            return None


def _wave(config: PretrainedConfig, given: TensorSizes) -> tuple[int, ...]:
    bins = _first(config, ("num_mel_bins",))
    if bins is not None:
        return int(config.max_length), bins
    if given.samples is None:
        raise ModelError(
            "its config does not say how long a piece of sound is",
            where=f"model_type {config.model_type}",
            hint="write `samples: 16000` in model.yaml: the length in samples, here one second at 16 kHz",
        )
    return (given.samples,)


def features_shape(config: PretrainedConfig, given: TensorSizes) -> tuple[int, ...]:
    """[bins, frames] of one piece of sound, or [frames, bins] where features have channels."""
    wide, positions = _first(config, ("input_feat_per_channel",)), _first(config, ("max_source_positions",))
    if wide is not None and positions is not None:
        return positions, wide * (_first(config, ("input_channels",)) or 1)
    bins = _first(config, ("num_mel_bins",))
    if bins is None or positions is None:
        raise ModelError(
            "its config does not say how large the features of a piece of sound are",
            where=f"model_type {config.model_type}",
            hint="export it to ONNX yourself and compile that file with task: graph",
        )
    return bins, 2 * positions


_SHAPES: dict[str, Callable[[PretrainedConfig, TensorSizes], tuple[int, ...]]] = {
    "pixel_values": picture_shape,
    "input_values": _wave,
    "input_features": features_shape,
}
_SIZES = {"pixel_values": ("image_size",), "input_values": ("samples",)}
"""Main input → the sizes of model.yaml that it may have."""


def _first(config: PretrainedConfig, names: Sequence[str]) -> int | None:
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int)), None)


class WrappedTensors(torch.nn.Module):
    """The model behind the inputs of our contract (values, position, length, index)."""

    def __init__(
        self,
        network: PreTrainedModel,
        given: TensorInput,
        seen: Callable[[Trace], None],
        outputs: list[str],
    ) -> None:
        super().__init__()
        self.network = network
        self.given = given
        self.seen = seen
        self.outputs = outputs

    def forward(
        self, values: torch.Tensor, position: torch.Tensor, length: torch.Tensor, index: torch.Tensor
    ) -> Any:
        """The outputs of the model by name; the values are float32 whatever the model computes in."""
        trace = Trace(position, index, length, None, has_tokens=False)
        self.seen(trace)
        with tracing(trace), complex_as_pairs():
            result = self.network(**{self.given.name: values.to(self.network.dtype)})
            return outputs_of(result, self.outputs)

    def example(self, max_batch: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Inputs of a size that no model gives a meaning of its own; the batch may change."""
        batch = torch.export.Dim("batch", min=1, max=max(4096, max_batch))
        sequence = torch.export.Dim("sequence", min=1, max=max(4096, max_batch))
        arguments = {
            VALUES: torch.zeros(3, *self.given.shape),
            "position": torch.zeros(3, dtype=torch.int64),
            "length": torch.ones(3, dtype=torch.int64),
            "index": torch.arange(7),
        }
        first = {0: batch}
        return arguments, {VALUES: first, "position": first, "length": first, "index": {0: sequence}}


def outputs_of(result: Any, names: list[str]) -> dict[str, torch.Tensor]:
    """The outputs of a traced model that its users want; their names are written to `names`."""
    wanted = ("logits",) if "logits" in result else ("last_hidden_state", "pooler_output")
    found = {name: result[name] for name in wanted if result.get(name) is not None}
    names[:] = found
    return found
