"""The tokens of the language model of `bundles.py` on the null engine: those of a ring in virtual time."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.families.ring import DirectRing
from tests.runtime.bundles import language_model


@cache
def null_tokens(prompt: tuple[int, ...], count: int) -> list[int]:
    """The greedy tokens of one prompt."""
    with tempfile.TemporaryDirectory() as folder:
        return DirectRing(language_model("null").write(Path(folder))).generate([prompt], count)[0]
