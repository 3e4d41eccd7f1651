"""transformers with torch, as it comes."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

from tests.bench.speed.engines.contract import Engine, Stepper, Stepping
from tests.bench.speed.outputs import NEXT, Array, prompt


class _Stepper:
    def __init__(self, path: Path, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._tensor: Any = torch.tensor
        self._model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        accepted = signature(self._model.forward).parameters
        self._kept = "cache_params" if "cache_params" in accepted else "past_key_values"
        self.grows = "linear_attention" in (getattr(self._model.config, "layer_types", None) or ())
        self._cache: Any = None
        self._logits: Any = None

    def clear(self) -> None:
        self._cache = None

    def take(self, tokens: int) -> None:
        self._run(list(prompt(tokens)))

    def step(self) -> None:
        self._run([NEXT])

    def logits(self) -> Array:
        return self._logits.numpy()  # type: ignore[no-any-return]

    def back(self, context: int) -> None:
        self._cache.crop(-1)

    def _run(self, tokens: list[int]) -> None:
        found = self._model(
            self._tensor([tokens]), use_cache=True, logits_to_keep=1, **{self._kept: self._cache}
        )
        self._cache, self._logits = found[self._kept], found.logits


def load_stepper(path: Path, threads: int) -> Stepper:
    """The model of a checkpoint."""
    return _Stepper(path, threads)


def load(path: Path, threads: int, processes: int) -> Engine:
    """See the table of contestants."""
    return Stepping(_Stepper(path, threads))
