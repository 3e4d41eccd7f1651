"""Odd checkpoints, by the table `ODDITIES`: loaded as transformers loads them, or refused in words that help.

The fast tests go as far as the loader decides; the slow ones compile, and compare the tokens with transformers'.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from partc.bundle.tensors import open_tensors
from partc.config.model import ModelConfig, load_model_config, read_model_config
from partc.config.section import Section
from partc.config.sources import CheckpointFolder
from partc.errors import UserError
from partc.frontend.checkpoint import stored_names
from partc.frontend.load import open_weights
from partc.frontend.trace.export import MODEL_CLASSES, build_fake
from partc.ir.graph import ModelInfo
from partc.ir.weights import materialize
from tests.frontend.oddities import EQUAL, ODDITIES, Oddity, save_sound

pytestmark = pytest.mark.hf

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The sound checkpoint of a family, made once."""

    @cache
    def made(family: str) -> Path:
        folder = tmp_path_factory.mktemp(family)
        save_sound(family, folder)
        return folder

    return made


def _odd(oddity: Oddity, sound: Folder, tmp_path: Path) -> ModelConfig:
    folder = tmp_path / "model"
    shutil.copytree(sound(oddity.family), folder)
    oddity.make(folder)
    load_model_config(folder)
    fields = {"max_sequence": 32, "task": oddity.task, **oddity.options}
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
    return read_model_config(Section({"model": str(folder), **fields}, "model.yaml"), tmp_path)


def _network(config: ModelConfig) -> tuple[Any, dict[str, Any]]:
    """The model as it is traced, and the sources of its parameters."""
    source, weights = open_weights(config)
    network = build_fake(source.config, config.task, torch.float32, "eager", FakeTensorMode())
    return network, weights.fit(network)


def _refused(call: Callable[[], object], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        call()
    text = f"{caught.value.message} {caught.value.hint}"
    assert re.search(expected, text, re.DOTALL), text
    assert caught.value.hint


@pytest.mark.parametrize("name", ODDITIES)
def test_an_odd_checkpoint_is_loaded_right_or_refused(name: str, sound: Folder, tmp_path: Path) -> None:
    oddity = ODDITIES[name]
    if oddity.expected != EQUAL:
        _refused(lambda: _network(_odd(oddity, sound, tmp_path)), oddity.expected)
        return
    config = _odd(oddity, sound, tmp_path)
    network, sources = _network(config)
    right: Any = MODEL_CLASSES[config.task].from_pretrained(config.model.folder, dtype=torch.float32)  # type: ignore[union-attr]
    wanted, values = stored_names(right), _read(config, sources)
    assert values.keys() == wanted.keys()
    for parameter, value in values.items():
        np.testing.assert_array_equal(value, wanted[parameter].detach().numpy(), parameter)
    # Names of one parameter in the traced model have one tensor there: it must be right for all of them.
    groups: dict[int, list[str]] = {}
    for parameter, tensor in stored_names(network).items():
        groups.setdefault(id(tensor), []).append(parameter)
    for first, *others in groups.values():
        for other in others:
            assert torch.equal(wanted[first], wanted[other]), f"{first} is not {other}"


def _read(config: ModelConfig, sources: dict[str, Any]) -> dict[str, Any]:
    folder = str(config.model.folder)  # type: ignore[union-attr]
    read = open_tensors(ModelInfo(name="odd", task=config.task, folder=folder))
    return {name: materialize(source, read) for name, source in sources.items()}


def test_the_table_has_thirty_oddities_of_both_kinds() -> None:
    equal = [name for name, oddity in ODDITIES.items() if oddity.expected == EQUAL]
    assert len(ODDITIES) >= 30 and 10 <= len(equal) <= len(ODDITIES) - 10


@pytest.mark.ort
def test_tokens_are_those_of_transformers_beyond_the_length_of_training(
    sound: Folder, tmp_path: Path
) -> None:
    """yarn, 32 tokens times 4: a prompt of 33 tokens and 64 that follow. Without the scaling other tokens follow."""
    from partc.verifier.reference import open_reference
    from tests.frontend.whole import compile_and_verify

    config = _odd(ODDITIES["yarn beyond max_position_embeddings"], sound, tmp_path)
    plain = ModelConfig(CheckpointFolder(sound("llama")), max_sequence=128)
    prompt = list(range(3, 36))
    scaled, unscaled = (open_reference(each).generate(prompt, 64) for each in (config, plain))
    assert scaled != unscaled, "the model would not notice"
    report = compile_and_verify(config, tmp_path)
    assert report.equal, report


@pytest.mark.slow
@pytest.mark.ort
@pytest.mark.parametrize("name", [name for name, oddity in ODDITIES.items() if oddity.expected == EQUAL])
def test_its_tokens_are_those_of_transformers(name: str, sound: Folder, tmp_path: Path) -> None:
    """Compiled for two devices, run, and compared with transformers, token by token and output by output."""
    from tests.frontend.whole import compile_and_verify

    report = compile_and_verify(_odd(ODDITIES[name], sound, tmp_path), tmp_path)
    assert report.equal, report
