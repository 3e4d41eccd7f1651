"""Models in 16 bits beside transformers', in 16 bits and with the same weights in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.dtypes import as_float32
from partc.verifier.compare import join_steps, same
from partc.verifier.reference import TransformersReference
from tests.families.check import MAX_SEQUENCE, sample_prompts, save_tiny
from tests.families.ring import DirectRing
from tests.families.tiny import tiny_config


def half_model(family: str, dtype: str, folder: Path) -> ModelConfig:
    """A tiny model of a family."""
    save_tiny(tiny_config(family), folder / "checkpoint")
    return ModelConfig(
        CheckpointFolder(folder / "checkpoint"), dtype=dtype, max_sequence=MAX_SEQUENCE, max_requests=3
    )


def check_half(ring: DirectRing, config: ModelConfig, count: int, *, most: float = 1.2) -> None:
    """Logits are about as near to those of the same weights in float32 as the ones of transformers, which rounds every
    result; tokens are its own, but where two tokens are as likely as its error is large.

    `most`: the error in errors of transformers.
    """
    half, wide = (TransformersReference(config) for _ in range(2))
    wide.network = wide.network.float()
    for number, prompt in enumerate(sample_prompts(97), start=1):
        (found,) = ring.generate([prompt], count)
        ids = {"input_ids": np.array([[*prompt, *found[:-1]]])}
        right, rounded = (
            model.outputs(ids)["logits"][0, len(prompt) - 1 :].astype(np.float32) for model in (wide, half)
        )
        crossed = join_steps(ring.trace[number])
        (logits,) = (
            as_float32(value, config.dtype)[0] for (_, peer, at), value in crossed.items() if peer == at
        )
        error = np.abs(rounded - right).max()
        assert np.abs(logits - right).max() < most * error
        expected = half.generate(prompt, count)
        first = same(found, expected)
        if first < count:
            assert right[first, expected[first]] - right[first, found[first]] < 2 * error, "no near tie"
