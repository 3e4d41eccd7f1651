"""Models that read a picture or a sound among their tokens; `python -m tests.families --media` has all families."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import ModelError
from partc.format.tasks import IMAGE_TEXT
from partc.frontend.load import load_model
from tests.families.media import check_media, save_family
from tests.families.sources import save_family as save_source

pytestmark = [pytest.mark.hf]
slow = pytest.mark.slow


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("family", "target"),
    [
        pytest.param("qwen3_vl", "ort", marks=pytest.mark.ort),
        pytest.param("gemma3", "ort", marks=[pytest.mark.ort, slow]),
        pytest.param("qwen2_audio", "ort", marks=[pytest.mark.ort, slow]),
        pytest.param("llava", "tvm", marks=[pytest.mark.tvm, slow]),
        pytest.param("qwen2_vl", "tvm", marks=[pytest.mark.tvm, slow]),
    ],
)
def test_family(family: str, target: str, tmp_path: Path) -> None:
    result = check_media(family, tmp_path, target)
    assert result.counts, (result.detail, result.controls)


@pytest.mark.in_turns(2)
def test_a_picture_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    save_family("llava", tmp_path / "checkpoint")
    with pytest.raises(ModelError, match="a picture takes 16 tokens") as refused:
        load_model(ModelConfig(CheckpointFolder(tmp_path / "checkpoint"), task=IMAGE_TEXT, max_sequence=143))
    assert refused.value.hint == "write max_sequence: 144 or more"


def test_a_preprocessor_of_many_sizes_needs_one(tmp_path: Path) -> None:
    save_family("qwen2_vl", tmp_path / "checkpoint")
    with pytest.raises(ModelError, match="more of a large picture than of a small one") as refused:
        load_model(ModelConfig(CheckpointFolder(tmp_path / "checkpoint"), task=IMAGE_TEXT, max_sequence=144))
    assert "image_size" in (refused.value.hint or "")


def test_without_its_task_a_model_of_pictures_is_refused(tmp_path: Path) -> None:
    save_family("llava", tmp_path / "checkpoint")
    with pytest.raises(ModelError, match="llava reads pictures or sound among its tokens") as refused:
        load_model(ModelConfig(CheckpointFolder(tmp_path / "checkpoint")))
    assert refused.value.hint == "write `task: image-text-to-text`"


def test_a_model_of_texts_is_refused(tmp_path: Path) -> None:
    save_source("t5", tmp_path / "checkpoint", 1)
    with pytest.raises(ModelError, match="t5 reads no pictures and no sound among tokens"):
        load_model(ModelConfig(CheckpointFolder(tmp_path / "checkpoint"), task=IMAGE_TEXT))
