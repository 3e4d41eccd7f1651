"""A checkpoint's preprocessor goes to the source device alone: no other one sees a picture or a sound."""

from __future__ import annotations

import shutil
from pathlib import Path

from partc.format.names import PREPROCESSOR_FILES, PREPROCESSOR_FOLDER
from partc.ir.graph import Module
from partc.ir.privacy import is_raw_input

_CONFIG = "config.json"
"""Old preprocessors do not say what they are: transformers then goes by the model's type."""


def preprocessor_files(module: Module) -> list[str]:
    """The files in the model folder, by name; none for token ids, for a graph and for random weights."""
    info = module.info
    takes = any(is_raw_input(value) for value in module.graph.inputs)
    if not takes or info.task == "graph" or info.random is not None:
        return []
    own = [name for name in PREPROCESSOR_FILES if (Path(info.folder) / name).is_file()]
    return [*own, _CONFIG] if own else []


def copy_preprocessor(module: Module, folder: Path) -> None:
    """Copy the files to `folder`/preprocessor; links (hub snapshots) are resolved."""
    for name in preprocessor_files(module):
        copy = folder / PREPROCESSOR_FOLDER / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(module.info.folder) / name, copy)
