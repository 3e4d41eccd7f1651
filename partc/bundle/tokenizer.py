"""The tokenizer goes to the source device alone: no other one sees text."""

from __future__ import annotations

import shutil
from pathlib import Path

from partc.errors import ModelError
from partc.ir.graph import ModelInfo
from partc.runtime.client.text import refuse_panic

FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja",
    "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
)  # fmt: skip
"""The files of tokenizers in Hugging Face checkpoints."""


def tokenizer_files(info: ModelInfo) -> list[Path]:
    """The tokenizer's files in the model folder; none for a graph or for random weights."""
    if info.task == "graph" or info.random is not None:
        return []
    return [path for name in FILES if (path := Path(info.folder) / name).is_file()]


def copy_tokenizer(info: ModelInfo, folder: Path) -> None:
    """Copy the tokenizer's files to `folder`/tokenizer; links (hub snapshots) are resolved.

    Raises:
        ModelError: tokenizer.json cannot be loaded, which would else be found on the device.
    """
    for path in tokenizer_files(info):
        if path.name == "tokenizer.json":
            _check(path)
        (folder / "tokenizer").mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "tokenizer" / path.name)


def _check(path: Path) -> None:
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_file(str(path))
    except (
        BaseException
    ) as error:  # tokenizers raises plain exceptions, and a BaseException when its Rust panics
        refuse_panic(error)
        hint = "download it again, or remove it"
        raise ModelError(f"not a tokenizer: {error}", where=str(path), hint=hint) from error
