"""Files that hold tensors, by the ends of their names: safetensors and GGUF."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

from partc.frontend.gguf.file import GgufFile
from partc.frontend.safetensors import SafetensorsFile, StoredTensor
from partc.ir.weights import Array, Leaf


class Container(Protocol):
    """A file of tensors, of which only the header stays in memory."""

    def names(self) -> list[str]:
        """The names of all tensors."""

    def entry(self, key: str) -> StoredTensor:
        """Type, shape and place of a tensor."""

    def read(self, key: str) -> Array:
        """A tensor as it is stored, mapped."""


CONTAINERS: dict[str, Callable[[Path], Container]] = {".safetensors": SafetensorsFile, ".gguf": GgufFile}
"""End of a name → reader of such files."""


def open_container(path: Path) -> Container:
    """The reader of a file whose name ends as one of `CONTAINERS`.

    Raises:
        ModelError: it is missing or damaged.
    """
    return CONTAINERS[path.suffix](path)


def open_folder(folder: Path) -> Callable[[Leaf], Array]:
    """Reads tensors of the containers of a folder; each is opened on first use."""

    @cache
    def opened(name: str) -> Container:
        return open_container(folder / name)

    return lambda leaf: opened(leaf.file).read(leaf.key)
