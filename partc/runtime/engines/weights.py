"""Weights of loaded sub-modules that compiled code reads as they lie in the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from partc.errors import BundleError
from partc.format.build import Submodule
from partc.format.reading import RECOMPILE
from partc.format.safetensors import Entry, Header

T = TypeVar("T")
Read = Callable[[Path, Sequence[Entry]], Iterable[T]]
"""Puts tensors of a file where the code finds them."""


class Weights(Generic[T]):
    """The weights of loaded sub-modules; a tensor that several of them name is there once."""

    def __init__(self, folder: Path, read: Read[T]) -> None:
        """`folder` is that of the bundle."""
        self._folder = folder
        self._read = read
        self._entries: dict[str, Mapping[str, Entry]] = {}
        self._placed: dict[tuple[str, str], T] = {}
        self._of: dict[str, list[tuple[str, str]]] = {}

    def entries(self, module: Submodule, names: Sequence[str]) -> list[Entry]:
        """Types and shapes of the tensors of a sub-module, in the order of `names`; nothing of them is read.

        Raises:
            BundleError: a file is none of tensors, or none of them has a name.
        """
        return [self._entries[file][name] for file, name in self._find(module, names)]

    def add(self, module: Submodule, names: Sequence[str]) -> None:
        """Read the tensors of a sub-module.

        Raises:
            BundleError: see `entries`.
        """
        keys = self._find(module, names)
        for file in module.weights:
            wanted = [name for home, name in dict.fromkeys(keys) if home == file]
            fresh = [self._entries[file][name] for name in wanted if (file, name) not in self._placed]
            tensors = zip(fresh, self._read(self._folder / file, fresh), strict=True)
            self._placed |= {(file, entry.name): tensor for entry, tensor in tensors}
        self._of[module.name] = keys

    def of(self, submodule: str) -> list[T]:
        """The tensors of a sub-module in the order of the arguments."""
        return [self._placed[key] for key in self._of[submodule]]

    def _find(self, module: Submodule, names: Sequence[str]) -> list[tuple[str, str]]:
        """The file and the name of each tensor."""
        for file in module.weights:
            if file not in self._entries:
                self._entries[file] = _entries(self._folder / file)
        homes = {name: file for file in module.weights for name in self._entries[file]}
        for name in names:
            if name not in homes:
                message = f"no file of {module.name} has the weight {name!r}"
                raise BundleError(message, where=str(self._folder), hint=RECOMPILE)
        return [(homes[name], name) for name in names]

    def remove(self, submodule: str) -> None:
        """Let go of what no other sub-module needs, and of what was read when `add` failed."""
        self._of.pop(submodule, None)
        used = {key for keys in self._of.values() for key in keys}
        self._placed = {key: tensor for key, tensor in self._placed.items() if key in used}


def _entries(path: Path) -> dict[str, Entry]:
    header = Header(path, BundleError, RECOMPILE)
    return {name: header.entry(name) for name in header.names()}
