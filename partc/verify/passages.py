"""The text that quantisation is judged by, as passages of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.config.model import CheckpointFolder, ModelConfig
from partc.errors import UserError
from partc.pipeline.contract import Progress
from partc.runtime.manifest import Model
from partc.runtime.text import Tokenizer
from partc.verify.reference import Reference

SAMPLE = "sample.txt"
"""A text of this name beside the weights is what a model is judged by, where no other is given."""
MOST_TOKENS = 512
"""Tokens that are predicted, unless more are asked for."""


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
            what = "is a folder, not a file" if text.is_dir() else "no such file"
            raise UserError(what, where=str(text), hint="--text takes a file of plain text (UTF-8)")
        return text
    if not isinstance(config.model, CheckpointFolder):
        return None
    own = config.model.folder / SAMPLE
    return own if own.is_file() else None


def read_passages(file: Path, tokenizer: Tokenizer, model: Model, most: int = MOST_TOKENS) -> list[Passage]:
    """The first tokens of a text, `most` of them to be predicted, in passages of at most max_sequence tokens.

    A passage begins anew: its first tokens are predicted without what came before. Where the tokenizer puts a token at
    the beginning of a text, every passage begins with it. White space at both ends of the text is left out.

    Raises:
        UserError: it is no text, has fewer than two tokens, or is not for this tokenizer.
        RunError: the tokenizer cannot be loaded.
    """
    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text", where=str(file), hint="give a file of plain text") from error
    ids = _encode(file, text, tokenizer, model)
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
        count = f"{len(ids)} token{'' if len(ids) == 1 else 's'}"
        raise UserError(
            f"the text is too short: {count}, and at least 2 are needed",
            where=str(file),
            hint="give a longer text; some hundred tokens make figures that mean something",
        )
    return passages


def _encode(file: Path, text: str, tokenizer: Tokenizer, model: Model) -> list[int]:
    (ids,) = tokenizer.encode([text])
    most = model.vocab_size
    if most is not None and ids and max(ids) >= most:
        raise UserError(
            f"the tokenizer makes token {max(ids)}, which is not below vocab_size, {most}",
            where=str(file),
            hint="is the tokenizer that of this model?",
        )
    return ids


def own_passages(
    full: Reference, prompts: Sequence[Sequence[int]], count: int, progress: Progress
) -> list[Passage]:
    """The `count` greedy tokens that the original itself says after each prompt; the prompts do not count."""
    passages = []
    for number, prompt in enumerate(prompts):
        progress("write a text", number, len(prompts))
        passages.append(Passage([*prompt, *full.generate(prompt, count)], len(prompt)))
    progress("write a text", len(prompts), len(prompts))
    return passages
