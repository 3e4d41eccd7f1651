"""Encoder-decoders, the whole way; `python -m tests.families --sources` has all families."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import ModelError
from partc.frontend.load import load_model
from tests.families.sources import check_source, save_family

pytestmark = [pytest.mark.hf]
slow = pytest.mark.slow


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("family", "target"),
    [
        pytest.param("t5", "ort", marks=pytest.mark.ort),
        pytest.param("whisper", "ort", marks=[pytest.mark.ort, slow]),
        pytest.param("t5", "tvm", marks=[pytest.mark.tvm, slow]),
        pytest.param("whisper", "tvm", marks=[pytest.mark.tvm, slow]),
    ],
)
def test_family(family: str, target: str, tmp_path: Path) -> None:
    result = check_source(family, tmp_path, target)
    assert result.counts, (result.detail, result.controls)


def test_without_its_task_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    save_family("t5", tmp_path / "checkpoint", 1)
    with pytest.raises(ModelError, match="reads a source before it generates text") as refused:
        load_model(ModelConfig(CheckpointFolder(tmp_path / "checkpoint")))
    assert refused.value.hint == "write `task: text2text-generation`"
