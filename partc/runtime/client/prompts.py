"""The prompts of a request as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partc.format.build import Model
from partc.runtime.client.placeholders import with_placeholders
from partc.runtime.client.text import Tokenizer

Prompts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]
"""One prompt or several, as text or as token ids."""


def token_ids(
    prompts: Prompts, model: Model, tokenizer: Tokenizer, *, with_media: bool
) -> tuple[list[list[int]], bool]:
    """The token ids of every prompt, and whether they were texts; `with_media`: a picture or a sound goes among them.

    Raises:
        RunError: the build has no tokenizer, and the prompts are texts.
    """
    texts, ids = _split(prompts)
    if with_media and model.placeholder_token is not None:
        ids = [with_placeholders(prompt, model, tokenizer) for prompt in texts or ids]
    elif texts:
        ids = tokenizer.encode(texts)
    return ids, bool(texts)


def default_tokens(model: Model, prompts: Sequence[Sequence[int]]) -> int:
    """The default number of new tokens: 64, or half of a short max_sequence, or what the longest prompt leaves."""
    if not model.generates:
        return 0
    before = max((len(model.before_answer(prompt)) for prompt in prompts), default=0)
    return max(1, min(half_at_most(model.max_sequence, 64), model.max_sequence - before))


def half_at_most(max_sequence: int, most: int) -> int:
    """So many new tokens, or half of a short `max_sequence`: the rest is for the prompt."""
    return min(most, max(1, max_sequence // 2))


def _split(prompts: Prompts) -> tuple[list[str], list[list[int]]]:
    """(texts, token ids), one of them empty."""
    items: list[Any] = [prompts] if isinstance(prompts, str) else list(prompts)
    if items and all(isinstance(item, str) for item in items):
        return items, []
    if items and all(isinstance(item, int | np.integer) for item in items):
        items = [items]
    return [], [[int(token) for token in item] for item in items]
