"""The families that partc promises, cut in three and in four: tokens, logits and cuts against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.check import check_family
from tests.families.tiny import tiny_config

pytestmark = [pytest.mark.hf, pytest.mark.ort]

REQUIRED = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "gpt2",
    "gpt_neox",
    "opt",
    "bloom",
    "stablelm",
    "olmo2",
)


@pytest.mark.parametrize("family", REQUIRED)
def test_family(family: str, tmp_path: Path) -> None:
    result = check_family(family, tiny_config(family), tmp_path, cuts=(3, 4))
    assert result.equal, result.detail
    assert result.controls
    assert all(result.controls.values()), result.controls
