"""The tokenizer, and what pools a text's vectors, go to the source device alone: no other one sees text."""

from __future__ import annotations

import shutil
from pathlib import Path

from partc.errors import ModelError
from partc.format.first_bytes import check_foreign_json
from partc.ir.graph import ModelInfo
from partc.runtime.client.text import refuse_panic

FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja",
    "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "modules.json", "1_Pooling/config.json",
)  # fmt: skip
"""The files of tokenizers in Hugging Face checkpoints, and of what sentence-transformers does behind an encoder."""


def tokenizer_files(info: ModelInfo) -> list[str]:
    """The tokenizer's files in the model folder, by name; none for a graph or for random weights."""
    if info.task == "graph" or info.random is not None:
        return []
    return [name for name in FILES if (Path(info.folder) / name).is_file()]


def copy_tokenizer(info: ModelInfo, folder: Path) -> None:
    """Copy the tokenizer's files to `folder`/tokenizer; links (hub snapshots) are resolved.

    Raises:
        ModelError: tokenizer.json cannot be loaded, which would else be found on the device.
    """
    for name in tokenizer_files(info):
        path, copy = Path(info.folder) / name, folder / "tokenizer" / name
        if name == "tokenizer.json":
            _check(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _check(path: Path) -> None:
    from tokenizers import Tokenizer

    check_foreign_json(path, ModelError)
    try:
        Tokenizer.from_file(str(path))
    except (
        BaseException
    ) as error:  # tokenizers raises plain exceptions, and a BaseException when its Rust panics
        refuse_panic(error)
        hint = "download it again, or remove it"
        raise ModelError(f"not a tokenizer: {error}", where=str(path), hint=hint) from error
