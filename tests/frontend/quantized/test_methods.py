"""Checkpoints that others quantised: every parameter bit for bit, and what is not read refused in words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch._subclasses.fake_tensor import FakeTensorMode

from partc.bundle.streaming import stream_weights
from partc.bundle.tensors import open_tensors
from partc.config.model import ModelConfig, load_model_config
from partc.errors import UserError
from partc.frontend import load_module
from partc.frontend.load import open_weights
from partc.frontend.precision import notes_on_formats
from partc.frontend.trace.export import build_fake
from partc.ir.graph import ModelInfo, Weight
from partc.ir.weights import WeightExpr, materialize
from tests.families.check import save_tiny
from tests.frontend.quantized.makers import MAKERS, Maker, gptq, quantise_folder

pytestmark = pytest.mark.hf
_LLAMA = {
    "model_type": "llama", "vocab_size": 97, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    save_tiny(_LLAMA, folder)
    return folder


def sources_of(config: ModelConfig) -> dict[str, WeightExpr]:
    """The source of every parameter."""
    source, weights = open_weights(config)
    return weights.fit(build_fake(source.config, config.task, torch.float32, "eager", FakeTensorMode()))


@pytest.mark.parametrize("name", MAKERS)
def test_every_parameter_has_the_floats_of_its_library(name: str, plain: Path, tmp_path: Path) -> None:
    floats = quantise_folder(plain, tmp_path / "model", MAKERS[name]())
    config = load_model_config(tmp_path / "model")
    sources = sources_of(config)
    info = ModelInfo("m", "text-generation", folder=str(tmp_path / "model"), dtype="f32")
    read = open_tensors(info)
    assert sources.keys() == floats.keys()
    weights = [Weight(key, "f32", tuple(floats[key].shape), source=sources[key]) for key in sources]
    streamed: dict[str, list[Any]] = {}
    for key, piece in stream_weights(weights, read, info):
        streamed.setdefault(key, []).append(piece)
    for key, expected in floats.items():
        whole = materialize(sources[key], read)
        assert np.array_equal(whole, expected.numpy()), key
        assert np.array_equal(np.concatenate(streamed[key]), expected.numpy()), key


def _changed(
    plain: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], None]
) -> Path:
    """A folder quantised by GPTQ, with tensors and settings changed."""
    folder = tmp_path / "model"
    quantise_folder(plain, folder, gptq(4, 32, symmetric=False))
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    change(tensors, config["quantization_config"])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


_Q = "model.layers.0.self_attn.q_proj"


def _settings(**wanted: Any) -> Callable[[dict[str, torch.Tensor], dict[str, Any]], None]:
    return lambda tensors, settings: settings.update(wanted)


def _without(end: str) -> Callable[[dict[str, torch.Tensor], dict[str, Any]], None]:
    def change(tensors: dict[str, torch.Tensor], settings: dict[str, Any]) -> None:
        del tensors[f"{_Q}.{end}"]

    return change


def _with(end: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., None]:
    def change(tensors: dict[str, torch.Tensor], settings: dict[str, Any]) -> None:
        tensors[f"{_Q}.{end}"] = make(tensors[f"{_Q}.{end}"])

    return change


def _beside(tensors: dict[str, torch.Tensor], settings: dict[str, Any]) -> None:
    tensors[f"{_Q}.weight"] = torch.zeros(4, 4)


def _infinite(scales: torch.Tensor) -> torch.Tensor:
    scales[0, 0] = torch.inf
    return scales


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_settings(quant_method="hqq"), "quantised by hqq, which partc does not read"),
        (_settings(bits=5), "GPTQ with `bits: 5`"),
        (_settings(checkpoint_format="planar"), "`checkpoint_format: planar`"),
        (_settings(group_size=48), "in groups of 48 need"),
        (_settings(group_size="x"), "`group_size: 'x'`"),
        (_settings(bits="4"), "`bits: '4'`"),
        (_with("qweight", lambda words: words.float()), "a qweight of f32, where words of i32"),
        (_beside, "q_proj.weight twice: as it is, and quantised by GPTQ"),
        (_without("qzeros"), "q_proj has no qzeros"),
        (_without("scales"), "q_proj has no scales"),
        (_with("scales", _infinite), "no finite number"),
        (_with("qzeros", lambda zeros: zeros | 15), "stores the zero point 15"),
        (_with("qweight", lambda words: words[:-1].clone()), "q_proj"),
        (_with("g_idx", lambda index: index + 9), "does not name one of"),
        (_with("g_idx", lambda index: index[:10].clone()), "does not name one of"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    change: Callable[..., None], words: str, plain: Path, tmp_path: Path
) -> None:
    config = load_model_config(_changed(plain, tmp_path, change))
    with pytest.raises(UserError) as caught:
        sources_of(config)
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_settings_beside_the_config_are_found(plain: Path, tmp_path: Path) -> None:
    maker = gptq(4, 32, symmetric=True)
    quantise_folder(plain, tmp_path / "model", maker)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    settings = config.pop("quantization_config")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    (tmp_path / "model" / "quantize_config.json").write_text(json.dumps(settings))
    assert sources_of(load_model_config(tmp_path / "model"))


def test_a_config_that_says_quantised_over_plain_weights_is_refused(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="but no tensor is"):
        sources_of(load_model_config(tmp_path / "model"))


def test_makers_differ() -> None:
    made: list[Maker] = [make() for make in MAKERS.values()]
    assert len({json.dumps(dict(maker.settings), sort_keys=True) for maker in made}) >= 15


@pytest.mark.in_turns(3)
def test_who_asks_for_floats_is_told_nothing(plain: Path, tmp_path: Path) -> None:
    """Act order of one matrix keeps it from being stored as integers; others are."""
    folder = _changed(plain, tmp_path, _with("g_idx", lambda index: index.flip(0).contiguous()))
    (tmp_path / "floats.yaml").write_text("model: model\nquantize: none\n")
    kept, floats = (load_module(load_model_config(path)) for path in (folder, tmp_path / "floats.yaml"))
    assert ["1 matrix is" in note for note in notes_on_formats(kept)] == [True]
    assert notes_on_formats(floats) == []
