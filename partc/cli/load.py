"""The texts that a command line names: IR, a planning problem; and its model, imported with a bar."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from partc.cli.progress import progress_bar
from partc.errors import UserError
from partc.format.plain_files import decode, read_plain_text

if TYPE_CHECKING:
    from partc.ir.graph import Module


def load_model(model: str, cache: bool = True) -> Module:
    """The IR of what MODEL names; with `cache`, from an import that was kept where there is one.

    Raises:
        UserError: no such model, or it cannot be compiled.
    """
    from partc.api.models import import_model

    with progress_bar() as bar:
        return import_model(model, cache=cache, step=bar.start, progress=bar.update)


def read_text(file: str, hint: str) -> str:
    """The text of a file, or of standard input for `-`.

    Raises:
        UserError: there is no such file, or it is not UTF-8 text.
    """
    path = Path(file)
    if file != "-" and not path.is_fifo():
        return read_plain_text(path, UserError, hint)
    content = _standard_input() if file == "-" else path.read_bytes()
    return decode(content, "standard input" if file == "-" else file, UserError, hint)


def _standard_input() -> bytes:
    buffer = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read().encode() if buffer is None else bytes(buffer.read())
