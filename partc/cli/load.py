"""What a command line names, as objects: a model, IR text, a planning problem."""

from __future__ import annotations

import sys
from pathlib import Path

from partc.cli.progress import progress_bar
from partc.errors import UserError
from partc.ir.graph import Module


def load_model(model: str) -> Module:
    """The IR of what MODEL names.

    Raises:
        UserError: no such model, or it cannot be compiled.
    """
    from partc.config.model import load_model_config
    from partc.frontend import load_module

    config = load_model_config(model)
    with progress_bar() as bar:
        bar.start(f"import {config.name}")
        return load_module(config, progress=bar.update)


def read_text(file: str, hint: str) -> str:
    """The text of a file, or of standard input for `-`.

    Raises:
        UserError: there is no such file, or it is not UTF-8 text.
    """
    if file == "-":
        return sys.stdin.read()
    path = Path(file)
    if path.is_dir() or not path.exists():
        raise UserError("is a folder, not a file" if path.is_dir() else "no such file", where=file, hint=hint)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text", where=file, hint=hint) from error
