"""A text as windows of tokens, all of one length: what one layer was called with for one holds for all."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer

from partc.calibration import LEAST_TOKENS
from partc.errors import UserError
from partc.format.plain_files import read_plain_text

WINDOW = 512
"""Tokens of a window at most."""
_CHARACTERS = 32
"""Characters of a token at most: so much of a long text is read."""
_TOKENIZER = "put the files of the model's own tokenizer, such as tokenizer.json, beside its weights"


def read_windows(text: Path, folder: Path, longest: int, most_tokens: int) -> list[Tensor]:
    """The first tokens of a text, i64[1, window] each; the rest of the last window is left out.

    Args:
        text: a file.
        folder: the folder of its tokenizer.
        longest: tokens that the model reads at once at most.
        most_tokens: so many of the text are used at most.

    Raises:
        UserError: one of them cannot be read, or the text is too short to measure anything.
    """
    content = read_plain_text(text, UserError, "--texts takes a file of plain text (UTF-8)")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # tokenizers raise what they come across
        raise UserError(
            f"its tokenizer cannot be read: {error}", where=str(folder),
            hint=_TOKENIZER,
        ) from error  # fmt: skip
    ids = tokenizer(content[: most_tokens * _CHARACTERS], verbose=False).input_ids
    ids = ids[:most_tokens]
    if not ids and content.strip():
        raise UserError(
            f"its tokenizer makes no tokens of {text}", where=str(folder),
            hint=_TOKENIZER,
        )  # fmt: skip
    if len(ids) < LEAST_TOKENS:
        raise UserError(
            f"{len(ids)} tokens are too few to measure what the inputs of a matrix do",
            where=str(text),
            hint=f"give texts of the kind that the model is for, at least {LEAST_TOKENS} tokens; thousands are better",
        )
    size = min(WINDOW, longest, len(ids))
    whole = torch.tensor(ids[: len(ids) // size * size], dtype=torch.int64)
    return list(whole.reshape(-1, 1, size))
