"""The requests of `partc run`, read from the command line."""

from __future__ import annotations

import re
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partc.api.media import media_option
from partc.cli.load import read_text
from partc.errors import RunError
from partc.format.plain_files import utf8
from partc.runtime.client.plain import MOST_COUNT

if TYPE_CHECKING:
    from partc.format.dtypes import Array
    from partc.format.role import Role
    from partc.runtime.client.prompts import Prompts


def check_task(role: Role, has_prompts: bool, tensors: str | None) -> None:
    """Refuse what a model does not take, before anything is started; `tensors`: the option that brings some.

    Raises:
        RunError: prompts for a model without tokens, tensors for one that generates text from its prompt alone, or no
            prompt for one that reads a picture or a sound among its tokens.
    """
    if has_prompts and not role.takes_tokens:
        raise RunError(
            "this model takes tensors, not prompts", where="--prompt", hint=f"give {media_option(role)}"
        )
    if tensors and not has_prompts and role.model.placeholder_token is not None:
        raise RunError(
            "this model takes a prompt with it", where=media_option(role), hint="give --prompt TEXT, too"
        )
    if tensors and role.model.generates and role.takes_tokens and role.model.placeholder_token is None:
        raise RunError("this model takes prompts, not tensors", where=tensors, hint="give --prompt TEXT")


def pair_requests(
    prompts: Sequence[Prompts], media: Sequence[Mapping[str, Array]], role: Role
) -> list[tuple[Prompts, Mapping[str, Array] | None]]:
    """Prompts and tensors as requests: each its own, but for a model that reads a picture or a sound among its tokens.

    There a prompt speaks of the picture of its place in the list, or all of them of the only one.

    Raises:
        RunError: there are several pictures, and not as many prompts.
    """
    if role.model.placeholder_token is None or not media:
        return [*((prompt, None) for prompt in prompts), *(((), tensors) for tensors in media)]
    if len(media) not in (1, len(prompts)):
        raise RunError(
            f"{len(prompts)} prompts and {len(media)} pictures or sounds do not go together",
            where=media_option(role),
            hint="give one for each prompt, or one for all of them",
        )
    each = media if len(media) > 1 else [media[0]] * len(prompts)
    return list(zip(prompts, each, strict=True))


def check_tokens(count: int, max_sequence: int) -> None:
    """Refuse more new tokens than fit beside the shortest prompt, before anything is started.

    Raises:
        RunError: names the most that fit.
    """
    if count < max_sequence:
        return
    raise RunError(
        f"{count} new tokens and a prompt are more than max_sequence, {max_sequence}",
        where="--tokens",
        hint=f"ask for {max_sequence - 1} or fewer, or compile with a larger max_sequence",
    )


def read_prompts(
    texts: Sequence[str], ids: Sequence[str], batch: bool, vocab_size: int | None = None
) -> list[Prompts]:
    """The prompts, texts before token ids, each a request of its own; with `batch` all are one.

    Raises:
        RunError: a list of ids is none or holds what is no token, or a batch of texts and ids.
        UserError: the file of a prompt cannot be read.
    """
    known = [_text(text) for text in texts]
    numbers = [_ids(text, vocab_size) for text in ids]
    if not batch:
        return [*known, *numbers]
    if known and numbers:
        raise RunError(
            "a batch holds texts or token ids, not both", where="--batch", hint="leave out --batch"
        )
    return [known or numbers]


def _text(text: str) -> str:
    if text != "-" and not text.startswith("@"):
        return utf8(text)
    return read_text(text.removeprefix("@"), "--prompt @FILE reads a file").removesuffix("\n")


def prompt_texts(prompts: Sequence[Prompts]) -> list[str]:
    """The text of every sequence in order, empty where it was given as token ids."""
    texts: list[str] = []
    for prompt in prompts:
        rows = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
        texts += (row if isinstance(row, str) else "" for row in rows)
    return texts


def _ids(text: str, vocab_size: int | None) -> list[int]:
    where = f"--token-ids {shlex.quote(text)}"
    try:
        ids = [_token(word) for part in text.split(",") for word in part.split() or [""]]
    except ValueError:
        ids = []
    if not ids:
        raise RunError("not a list of token ids", where=where, hint="write --token-ids 1,2,3")
    limit = MOST_COUNT if vocab_size is None else vocab_size  # no vocabulary comes near it
    for token in ids:
        if not 0 <= token < limit:
            raise RunError(
                f"{token} is no token of this model", where=where, hint=f"give numbers from 0 to {limit - 1}"
            )
    return ids


def _token(word: str) -> int:
    """A token id in plain digits; Python also takes `1_0` and digits of other scripts."""
    if not re.fullmatch(r"-?[0-9]+", word):
        raise ValueError(word)
    return int(word)


def read_tensors(file: Path) -> Mapping[str, Array]:
    """The arrays of an .npz file by name; pickled ones are refused.

    Raises:
        RunError: there is no such file, or it is something else.
    """
    import numpy as np

    hint = "numpy.savez(file, name=array) writes one"
    if not file.is_file():
        raise RunError("no such file", where=str(file), hint=hint)
    try:
        with np.load(file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (ValueError, OSError, AttributeError, zipfile.BadZipFile) as error:
        raise RunError("not an .npz file of plain arrays", where=str(file), hint=hint) from error
