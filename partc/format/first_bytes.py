"""Files that are something else than their name says, told by their first bytes.

A clone without git-lfs, a saved web page or an editor's byte order mark leaves a file that a parser calls damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from partc.errors import UserError

HEAD = 512
"""Bytes that tell."""
BOM = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which a few editors write and most readers of JSON refuse."""


@dataclass(frozen=True)
class Kind:
    """A kind of file that is often found in the place of another."""

    what: str
    hint: str
    matches: Callable[[bytes], bool]


def _starts(*heads: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(heads)


KINDS = (
    Kind(
        "a pointer of git-lfs, not the file itself",
        "fetch the files: `git lfs install && git lfs pull` in the clone, or download them from the hub",
        _starts(b"version https://git-lfs"),
    ),
    Kind(
        "a web page (HTML), not the file itself",
        "download the file, not the page about it: on the hub its address has `resolve` in place of `blob`",
        lambda head: head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")),
    ),
    Kind("text in UTF-16", "save it as UTF-8, without a byte order mark", _starts(b"\xff\xfe", b"\xfe\xff")),
    Kind("an archive (zip), perhaps a pickle of torch", "unpack it, or save safetensors", _starts(b"PK\3\4")),
    Kind("compressed (gzip)", "unpack it: gunzip", _starts(b"\x1f\x8b")),
    Kind(
        "a GGUF file of llama.cpp",
        "give it a name that ends in .gguf, and write `model: {gguf: FILE}` in model.yaml",
        _starts(b"GGUF"),
    ),
)
"""Kinds of file, by their first bytes."""


def kind_of(head: bytes) -> Kind | None:
    """The kind of file that these first bytes belong to; None: none that is known."""
    return next((kind for kind in KINDS if kind.matches(head)), None)


def refuse_other_kind(head: bytes, where: str, refused: type[UserError]) -> None:
    """Refuse a file whose first bytes are those of another kind.

    Raises:
        UserError: `refused`, with what the file is and where the right one comes from.
    """
    if (kind := kind_of(head)) is not None:
        raise refused(f"this is {kind.what}", where=where, hint=kind.hint)


def check_foreign_json(path: Path, refused: type[UserError]) -> None:
    """Refuse a JSON file that a library will read which takes neither another kind of file nor a byte order mark.

    Raises:
        UserError: `refused`; see above.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    refuse_other_kind(head, str(path), refused)
    if head.startswith(BOM):
        raise refused(
            "the file begins with a byte order mark (BOM), which transformers does not read",
            where=str(path),
            hint=rf"remove its first three bytes: sed -i '1s/^\xEF\xBB\xBF//' {path}",
        )
