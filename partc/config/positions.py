"""The positions that a model has, as far as its config says so before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from partc.errors import ConfigError
from partc.format.gguf import GgufHeader

LONGEST = 512
"""`max_sequence`, where neither the file nor the model says less."""


def default_length(config: Mapping[str, object] | Path) -> int:
    """The default of `max_sequence`: no more than there are positions for.

    Args:
        config: the content of config.json, the folder that it lies in, or a GGUF file.
    """
    found = _read(config) if isinstance(config, Path) else config
    text = found.get("text_config")
    for section in (text if isinstance(text, Mapping) else {}, found):
        for key in ("max_position_embeddings", "n_positions"):
            count = section.get(key)
            if isinstance(count, int) and 2 <= count < LONGEST:
                return count
    return LONGEST


def _read(place: Path) -> Mapping[str, object]:
    """What is no config is refused later, with what it is."""
    try:
        if place.suffix == ".gguf":
            facts = GgufHeader(place, ConfigError).metadata
            return {"n_positions": facts.get(f"{facts.get('general.architecture')}.context_length")}
        found = json.loads((place / "config.json").read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, ConfigError):
        return {}
    return found if isinstance(found, dict) else {}
