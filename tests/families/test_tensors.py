"""Encoders of pictures and sound, cut in three: what comes out is what transformers computes, and no picture leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.tensors import FAMILIES, check_tensors

pytestmark = [pytest.mark.hf, pytest.mark.ort]

QUICK = ("swin", "convnext", "wav2vec2")
"""Windows of patches, no attention, sound; `tests/e2e/test_pictures.py` has patches alone."""


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAMILIES]
)
def test_family(family: str, tmp_path: Path) -> None:
    result = check_tensors(family, tmp_path)
    assert result.counts, result
