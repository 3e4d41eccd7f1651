"""Families with states that a step rewrites as a whole: one of each kind of state, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import ModelError
from partc.frontend.load import load_model
from partc.frontend.trace import recurrent
from tests.families.check import check_family, compile_ring, devices_file, save_tiny, simplified
from tests.families.tiny import tiny_config

pytestmark = [pytest.mark.hf, pytest.mark.ort]

KINDS = {
    "lfm2": "short convolutions beside attention",
    "mamba": "a key for all channels",
    "mamba2": "a decay for every head",
    "qwen3_next": "gated delta rule beside attention",
    "kimi_linear": "a decay for every channel, and beta",
    "minimax": "a constant decay in a module of its own, and a class of cache of its own",
    "recurrent_gemma": "a gated sum of every channel, and convolutions without a cache",
    "rwkv": "a weighted mean of every channel, and shifted rows",
}
QUICK = ("lfm2", "mamba2")
"""The others are slow."""


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KINDS]
)
def test_family(family: str, tmp_path: Path) -> None:
    result = check_family(family, tiny_config(family), tmp_path)
    assert result.equal, result.detail
    assert "slot" in result.controls
    assert {"convolution", "memory"} & result.controls.keys()
    assert all(result.controls.values()), result.controls


def tiny(folder: Path, family: str, batch: int = 1) -> ModelConfig:
    save_tiny(tiny_config(family), folder / "checkpoint")
    return ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=64, max_batch=batch, max_requests=2
    )


def test_prompts_of_unequal_lengths_in_a_batch(tmp_path: Path) -> None:
    """What fills up the shorter ones does not enter their states."""
    ring = compile_ring(
        simplified(tiny(tmp_path, "mamba2", 3)), tmp_path / "build", devices_file(tmp_path, 2)
    )
    rng = np.random.default_rng(3)
    prompts = [[int(token) for token in rng.integers(3, 97, length)] for length in (9, 1, 4)]
    alone = [ring.generate([prompt], 12)[0] for prompt in prompts]
    assert ring.generate(prompts, 12) == alone


@pytest.mark.in_turns(2)
@pytest.mark.parametrize(
    ("missing", "what"),
    [("causal_conv1d_fn", "a convolution"), ("mamba2_chunk_scan", "a recurrent state")],
)
def test_a_function_of_another_name_is_refused(
    missing: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced through, it would forget what was before the step."""
    known = {name: ours for name, ours in recurrent.REPLACED.items() if name != missing}
    monkeypatch.setattr(recurrent, "REPLACED", known)
    with pytest.raises(ModelError, match=f"its code computes {what} in a way that partc does not know"):
        load_model(tiny(tmp_path, "mamba2"))


def test_linear_attention_in_a_module_that_is_not_known_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "_LIGHTNING", {"nothing has this"})
    with pytest.raises(ModelError, match="cannot be traced"):
        load_model(tiny(tmp_path, "minimax"))
