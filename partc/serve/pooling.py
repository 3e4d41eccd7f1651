"""Pooling: the vectors of a text's tokens → the one vector of the text.

Checkpoints for sentence-transformers say how, in `modules.json` and `1_Pooling/config.json`; for all others the mean of
the tokens is taken. A text is computed alone here, so no token is padding, and none needs a mask.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from partc.errors import RunError
from partc.format.dtypes import Array

Mode = Literal["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
_KEYS: Mapping[str, Mode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Switch in the configuration → mode; later versions name the mode itself, in `pooling_mode`."""


@dataclass(frozen=True)
class Pooling:
    """The way from the vectors of tokens to one vector."""

    modes: tuple[Mode, ...] = ("mean",)
    """The results of several are put one behind the other."""
    normalises: bool = False
    """Whether the vector is scaled to length 1 at the end."""

    def vector(self, hidden: Array) -> Array:
        """float32[hidden × modes] of float[sequence, hidden]; reckoned in float32, as sentence-transformers does."""
        tokens = np.asarray(hidden, np.float32)
        made = np.concatenate([_pooled(tokens, mode) for mode in self.modes])
        length = float(np.linalg.norm(made)) if self.normalises else 1.0
        return np.asarray(made / max(length, 1e-12), np.float32)


def read_pooling(folder: Path) -> Pooling:
    """The pooling of a checkpoint, from the tokenizer's folder of its build.

    Raises:
        RunError: the files cannot be read, or ask for what is not there, such as a layer behind the pooling.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return Pooling()
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in _read(path)]
    unknown = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if unknown:
        raise RunError(
            f"a module of the kind {unknown[0]}, which this server does not compute",
            where=str(path),
            hint="partc run gives the vectors of the tokens",
        )
    return Pooling(_modes(folder / "1_Pooling" / "config.json"), "Normalize" in kinds)


def _modes(path: Path) -> tuple[Mode, ...]:
    if not path.is_file():
        return ("mean",)
    config = _read(path)
    named = config.get("pooling_mode")
    names = [named] if isinstance(named, str) else named
    if names is None:
        names = [mode for key, mode in _KEYS.items() if config.get(key)]
    if not names or any(name not in get_args(Mode) for name in names):
        raise RunError(
            f"an unknown pooling: {named or 'none'}", where=str(path), hint="one of cls, mean, max, …"
        )
    return tuple(names)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", where=str(path), hint="compile again") from None


def _pooled(tokens: Array, mode: Mode) -> Array:
    count = len(tokens)
    match mode:
        case "cls":
            return np.asarray(tokens[0])
        case "lasttoken":
            return np.asarray(tokens[-1])
        case "max":
            return np.asarray(tokens.max(axis=0))
        case "mean":
            return np.asarray(tokens.sum(axis=0) / count)
        case "mean_sqrt_len_tokens":
            return np.asarray(tokens.sum(axis=0) / np.sqrt(np.float32(count)))
        case "weightedmean":
            weights = np.arange(1, count + 1, dtype=np.float32)
            return np.asarray((tokens * weights[:, None]).sum(axis=0) / weights.sum())
