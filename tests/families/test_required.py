"""The families that partc promises, cut in three and in four: tokens, logits and cuts against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.check import check_family
from tests.families.shares import SHARES
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

SHARED = ("llama", "qwen3", "gemma2", "phi", "gpt2", "gpt_neox", "opt")
"""Families whose blocks are divided, too: grouped queries, norms of heads, soft caps, attention beside the MLP, fused
q-k-v, biases."""


QUICK = ("llama", "gemma2", "phi", "gpt2", "bloom")
"""One with grouped queries; windows, soft caps and tied embeddings; attention beside the MLP; a table of positions and
fused q-k-v; biases of distance. The others are slow."""


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in REQUIRED]
)
def test_family(family: str, tmp_path: Path) -> None:
    shares = SHARES if family in SHARED else ()
    result = check_family(family, tiny_config(family), tmp_path, cuts=(3, 4), shares=shares)
    assert result.equal, result.detail
    assert result.controls
    assert all(result.controls.values()), result.controls
