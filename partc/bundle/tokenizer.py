"""The tokenizer, and what pools a text's vectors, go to the source device alone: no other one sees text."""

from __future__ import annotations

from pathlib import Path

from partc.errors import ModelError
from partc.format.first_bytes import BOM, HEAD, refuse_other_kind
from partc.ir.graph import ModelInfo
from partc.runtime.client.text import refuse_panic

FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja",
    "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "modules.json", "1_Pooling/config.json",
)  # fmt: skip
"""The files of tokenizers in Hugging Face checkpoints, and of what sentence-transformers does behind an encoder."""

_TEXTS = (".json", ".jinja", ".txt")


def tokenizer_files(info: ModelInfo) -> dict[str, Path]:
    """The tokenizer's files by their names in the bundle; none for a graph, or weights that are random without one."""
    if info.task == "graph" or (info.random is not None and info.tokenizer is None):
        return {}
    folder = Path(info.folder if info.tokenizer is None else info.tokenizer)
    return {name: folder / name for name in FILES if (folder / name).is_file()}


def copy_tokenizer(info: ModelInfo, folder: Path) -> None:
    """Copy the tokenizer's files to `folder`/tokenizer; links (hub snapshots) are resolved.

    Raises:
        ModelError: tokenizer.json cannot be loaded, which would else be found on the device, or has tokens that a
            model made from a config does not know.
    """
    for name, path in tokenizer_files(info).items():
        copy = folder / "tokenizer" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        refuse_other_kind(content[:HEAD], str(path), ModelError)
        # Texts with a byte order mark are right, but most readers of JSON refuse them.
        copy.write_bytes(content.removeprefix(BOM) if path.suffix in _TEXTS else content)
        if name == "tokenizer.json":
            _check_count(info, _count_tokens(copy, path), path)


def _check_count(info: ModelInfo, tokens: int, path: Path) -> None:
    """Refuse a tokenizer that has tokens which a model made from a config does not know."""
    if info.tokenizer is not None and info.vocab_size is not None and tokens > info.vocab_size:
        raise ModelError(
            f"the tokenizer has {tokens} tokens, and by its config the model has {info.vocab_size}",
            where=str(path),
            hint=f"write `vocab_size: {tokens}` in the config of model.yaml",
        )


def _count_tokens(copy: Path, path: Path) -> int:
    """The number of ids that a tokenizer may give; `path` is where the copy comes from.

    Raises:
        ModelError: it cannot be loaded.
    """
    from tokenizers import Tokenizer

    try:
        return 1 + max(Tokenizer.from_file(str(copy)).get_vocab().values(), default=-1)
    except (
        BaseException
    ) as error:  # tokenizers raises plain exceptions, and a BaseException when its Rust panics
        refuse_panic(error)
        hint = "download it again, or remove it"
        raise ModelError(f"not a tokenizer: {error}", where=str(path), hint=hint) from error
