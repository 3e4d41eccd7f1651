"""Weights of loaded sub-modules that compiled code reads as they lie in the files."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import RawIOBase
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from partc.errors import BundleError
from partc.format.build import Submodule
from partc.format.dtypes import BY_SHORT, Array
from partc.format.layouts import ALIGNMENT
from partc.format.reading import RECOMPILE, unreadable
from partc.format.safetensors import Entry, Header
from partc.runtime.engines.memory import aligned_zeros

_LARGE_PAGE = 2 << 20

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


def read_into_large_pages(path: Path, entries: Sequence[Entry]) -> list[Array]:
    """Tensors of a file in memory of their own, at aligned addresses and in large pages where Linux has them.

    Every token reads them from end to end. In pages of 4 KiB the processor's prefetching ends with each page, and pages
    of a mapped file stay that small. So they are copied once; the memory is given back when the last array is gone.

    Raises:
        BundleError: the file cannot be read, or is shorter than its header says.
    """
    sizes = [-(-entry.bytes // ALIGNMENT) * ALIGNMENT for entry in entries]
    block = _large_pages(sum(sizes))
    arrays, start = [], 0
    try:
        with path.open("rb", buffering=0) as file:
            for entry, size in zip(entries, sizes, strict=True):
                data = block[start : start + entry.bytes]
                file.seek(entry.offset)
                _fill(file, data.data, path)
                arrays.append(data.view(BY_SHORT[entry.dtype].held).reshape(entry.shape))
                start += size
    except OSError as error:
        raise unreadable(path, error) from None
    return arrays


def _fill(file: RawIOBase, memory: memoryview, path: Path) -> None:
    """Linux reads 2 GiB at a time at most."""
    while len(memory):
        count = file.readinto(memory)
        if not count:
            raise BundleError("the file is shorter than its header says", where=str(path), hint=RECOMPILE)
        memory = memory[count:]


def _large_pages(size: int) -> Array:
    """Zeros at an aligned address."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or size < _LARGE_PAGE:
        return aligned_zeros((size,), np.dtype(np.uint8))
    # A mapping that is shared, which is the default, would have small pages.
    pages = mmap.mmap(-1, size + _LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(pages, np.uint8)
    skip = -block.ctypes.data % _LARGE_PAGE
    return block[skip : skip + size]
