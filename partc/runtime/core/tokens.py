"""Token ids held against the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from partc.errors import RunError
from partc.format.build import Model

_MOST_TOKENS = 2**63
"""The largest int64, for models that do not give the size of their vocabulary."""


def check_tokens(tokens: Sequence[int], where: str, model: Model) -> None:
    """Hold token ids against the vocabulary.

    Raises:
        RunError: naming the token and the limit.
    """
    if min(tokens, default=0) < 0:
        raise RunError(f"token {min(tokens)} is below 0", where=where, hint="token ids count from 0")
    most = _MOST_TOKENS if model.vocab_size is None else model.vocab_size
    if max(tokens, default=0) >= most:
        raise RunError(f"token {max(tokens)} is not below vocab_size, {most}", where=where)
