"""The text that quantisation is judged by, as passages of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import UserError
from partc.format.build import Model
from partc.pipeline.contract import Progress
from partc.runtime.client.text import Tokenizer
from partc.verifier.reference import Reference

SAMPLE = "sample.txt"
"""Name of the text beside the weights that is used where no other is given."""
MOST_TOKENS = 512
"""Tokens to predict by default."""
_UNSURE = 64
"""So many tokens at the end of a part of a text may be others than those of the whole: the cut may lie in a word."""
_CHARACTERS = 4
"""Letters of a token, as a first guess."""
_MOST_CHARACTERS = 256
"""A text of longer tokens is read no further, since it may have none of the length that is looked for."""


@dataclass(frozen=True)
class Passage:
    """Tokens that a model reads from the first on."""

    ids: Sequence[int]
    first: int = 1
    """The first token that counts as predicted; those before are given."""


def find_text(config: ModelConfig, text: Path | None) -> Path | None:
    """The file to read: the one that is given, else the model's own sample; None where there is neither.

    Raises:
        UserError: there is no such file.
    """
    if text is not None:
        if not text.is_file():
            what = "is a folder" if text.is_dir() else "is no plain file" if text.exists() else "no such file"
            raise UserError(what, where=str(text), hint="--text takes a file of plain text (UTF-8)")
        return text
    if not isinstance(config.model, CheckpointFolder):
        return None
    own = config.model.folder / SAMPLE
    return own if own.is_file() else None


def read_passages(file: Path, tokenizer: Tokenizer, model: Model, most: int = MOST_TOKENS) -> list[Passage]:
    """The first tokens of a text, `most` of them to be predicted, in passages of at most max_sequence tokens.

    A passage begins anew: its first tokens are predicted without what came before. Where the tokenizer puts a token at
    the beginning of a text, every passage begins with it. White space at both ends of the text is left out. No more of
    the file is read than these tokens take, and what may be half a word behind them: time and memory are O(most).

    Raises:
        UserError: it is no text, has fewer than two tokens, or is not for this tokenizer.
        RunError: the tokenizer cannot be loaded.
    """
    # The first token of each passage is not predicted.
    wanted = most + most // max(1, model.max_sequence - 1) + 1
    ids = _first_tokens(file, tokenizer, wanted)
    _check_ids(file, ids, model)
    start = ids[:1] if ids[:1] == [model.bos_token_id] else []
    body, room = ids[len(start) :], model.max_sequence - len(start)
    pieces = [[*start, *body[at : at + room]] for at in range(0, len(body), room)]
    passages, left = [], most
    for piece in pieces:
        kept = piece[: left + 1]
        if len(kept) > 1:
            passages.append(Passage(kept))
            left -= len(kept) - 1
    if not passages:
        if not ids[len(start) :]:
            raise UserError(
                "there is no text in it", where=str(file), hint="give a file of plain text (UTF-8)"
            )
        count = f"{len(ids)} token{'' if len(ids) == 1 else 's'}"
        raise UserError(
            f"the text is too short: {count}, and at least 2 are needed",
            where=str(file),
            hint="give a longer text; some hundred tokens make figures that mean something",
        )
    return passages


def _first_tokens(file: Path, tokenizer: Tokenizer, count: int) -> list[int]:
    """At least the first `count` tokens of a text, all of them where it has fewer."""
    text, size = "", _CHARACTERS * (count + _UNSURE)
    try:
        with file.open(encoding="utf-8-sig") as stream:
            while True:
                more = stream.read(size)
                _check_text(file, more)
                text = (text + more).lstrip()
                (ids,) = tokenizer.encode([text.rstrip()])
                if len(more) < size:
                    return ids
                if len(ids) >= count + _UNSURE or len(text) >= _MOST_CHARACTERS * (count + _UNSURE):
                    return ids[:-_UNSURE] or ids
                size = max(size, len(text))
    except UnicodeDecodeError as error:
        raise UserError(
            "not UTF-8 text", where=str(file), hint="give a file of plain text (UTF-8)"
        ) from error


def _check_text(file: Path, text: str) -> None:
    """Refuse zero bytes: they are valid UTF-8, and binary files are full of them."""
    if "\0" in text:
        raise UserError(
            "not a text: there are zero bytes in it",
            where=str(file),
            hint="give a file of plain text (UTF-8)",
        )


def _check_ids(file: Path, ids: Sequence[int], model: Model) -> None:
    most = model.vocab_size
    if most is not None and ids and max(ids) >= most:
        raise UserError(
            f"the tokenizer makes token {max(ids)}, which is not below vocab_size, {most}",
            where=str(file),
            hint="is the tokenizer that of this model?",
        )


def own_passages(
    full: Reference, prompts: Sequence[Sequence[int]], count: int, progress: Progress
) -> list[Passage]:
    """The first `count` greedy tokens of the original after each prompt; the prompts are not predicted."""
    passages = []
    for number, prompt in enumerate(prompts):
        progress("write a text", number, len(prompts))
        passages.append(Passage([*prompt, *full.generate(prompt, count)], len(prompt)))
    progress("write a text", len(prompts), len(prompts))
    return passages
