"""The tokens of a prompt with a picture or a sound among them."""

from __future__ import annotations

from collections.abc import Sequence

from partc.format.build import Model
from partc.runtime.client.text import Tokenizer


def with_placeholders(prompt: str | Sequence[int], model: Model, tokenizer: Tokenizer) -> list[int]:
    """The token ids of a prompt that speaks of one picture or sound.

    Where the prompt has the model's own placeholder once, as chat templates write it, all of them stand there; where it
    has none, they stand before its text, behind the token that begins one.

    Raises:
        RunError: the build has no tokenizer, and the prompt is text.
    """
    ids = tokenizer.encode([prompt])[0] if isinstance(prompt, str) else list(prompt)
    token = model.placeholder_token
    assert token is not None
    found = ids.count(token)
    if found > 1:
        return ids
    place = ids.index(token) if found else int(ids[:1] == [model.bos_token_id])
    return [*ids[:place], *[token] * model.placeholders, *ids[place + found :]]
