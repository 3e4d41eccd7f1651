"""The positions that a model has, as far as its config says so before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

LONGEST = 512
"""`max_sequence`, where neither the file nor the model says less."""


def default_length(config: Mapping[str, object] | Path) -> int:
    """The default of `max_sequence`: no more than there are positions for.

    Args:
        config: the content of config.json, or the folder that it lies in.
    """
    found = _read(config / "config.json") if isinstance(config, Path) else config
    text = found.get("text_config")
    for section in (text if isinstance(text, Mapping) else {}, found):
        for key in ("max_position_embeddings", "n_positions"):
            count = section.get(key)
            if isinstance(count, int) and 2 <= count < LONGEST:
                return count
    return LONGEST


def _read(file: Path) -> Mapping[str, object]:
    """What is no config is refused later, with what it is."""
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
