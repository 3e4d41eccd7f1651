"""Models of pictures and sound: what they take, and what is said where nobody says it."""

from __future__ import annotations

from typing import Any

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import RandomModel
from partc.errors import ModelError

pytestmark = pytest.mark.hf

LAYERS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def input_of(kind: str, **fields: Any) -> Any:
    """The tensor that a model with this main input takes."""
    from types import SimpleNamespace

    from partc.frontend.trace.tensors import TensorSizes, tensor_input

    network: Any = SimpleNamespace(main_input_name=kind)
    given = TensorSizes(fields.pop("given", None), fields.pop("samples", None))
    return tensor_input(network, SimpleNamespace(model_type="x", **fields), given)


@pytest.mark.parametrize(
    ("kind", "fields", "shape"),
    [
        ("pixel_values", {"image_size": 8}, (3, 8, 8)),
        ("pixel_values", {"image_size": [8, 6], "num_channels": 1}, (1, 8, 6)),
        ("pixel_values", {"image_size": {"height": 8, "width": 6}}, (3, 8, 6)),
        ("pixel_values", {"image_size": 8, "given": (4, 2)}, (3, 4, 2)),
        ("pixel_values", {"image_size": 8, "num_frames": 5}, (5, 3, 8, 8)),
        ("input_values", {"samples": 800}, (800,)),
        ("input_values", {"num_mel_bins": 16, "max_length": 64, "samples": 800}, (64, 16)),
        ("input_features", {"num_mel_bins": 16, "max_source_positions": 40}, (16, 80)),
    ],
)
def test_sizes(kind: str, fields: dict[str, Any], shape: tuple[int, ...]) -> None:
    found = input_of(kind, **fields)
    assert (found.name, found.shape) == (kind, shape)


def test_models_of_text_take_no_tensor() -> None:
    assert input_of("input_ids") is None


@pytest.mark.parametrize(
    ("kind", "message", "hint"),
    [
        ("pixel_values", "how large a picture is", "image_size: 224"),
        ("input_values", "how long a piece of sound is", "samples: 16000"),
        ("input_features", "how large the features", "task: graph"),
        ("past_values", "its input is past_values, and partc takes input_ids", "task: graph"),
    ],
)
def test_what_nobody_says(kind: str, message: str, hint: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        input_of(kind)
    assert hint in str(caught.value.hint)


def test_a_mistake_is_not_told_as_a_failed_trace() -> None:
    from partc.frontend.load import load_model

    with pytest.raises(ModelError, match="how large a picture is"):
        load_model(
            ModelConfig(RandomModel({"model_type": "resnet", "depths": [1]}, 0), "image-classification")
        )


def test_the_graph_takes_the_tensor_and_a_batch() -> None:
    from partc.frontend.load import load_model

    config = {"model_type": "vit", **LAYERS, "image_size": 16, "patch_size": 8}
    module = load_model(ModelConfig(RandomModel(config, 0), "feature-extraction", "bfloat16", max_batch=2))
    (given,) = (value for value in module.graph.inputs if not value.is_step)
    assert (given.name, given.dtype, given.shape) == ("pixel_values", "f32", ("batch", 3, 16, 16))
    assert module.info.dims == {"batch": 2}
    assert module.info.max_sequence == 1
    assert [value.dtype for value in module.graph.outputs] == ["bf16", "bf16"]


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        ("bert", {"image_size": (4, 4)}, "`image_size` means nothing to this model: its input is input_ids"),
        ("bert", {"samples": 800}, "`samples` means nothing"),
        ("vit", {"samples": 800}, "`samples` means nothing to this model: its input is pixel_values"),
    ],
)
def test_sizes_that_an_input_does_not_have(kind: str, sizes: dict[str, Any], message: str) -> None:
    from partc.frontend.load import load_model

    config = {"model_type": kind, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = ModelConfig(RandomModel(config, 0), "feature-extraction", **sizes)
    with pytest.raises(ModelError, match=message):
        load_model(model)
