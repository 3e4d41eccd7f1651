"""Safetensors files, read a tensor at a time and never trusted: sizes are checked before anything is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partc.errors import ModelError
from partc.format.safetensors import Header
from partc.ir.types import BY_SHORT
from partc.ir.weights import Array


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint."""

    file: str
    dtype: str
    """Short name, `bf16`."""
    shape: tuple[int, ...]
    offset: int
    """The offset of its first byte in the file."""
    float8: str = ""
    """The format of floats of 8 bits that its bytes are; empty: none."""
    blocks: str = ""
    """The format of GGUF's blocks that its rows of bytes are; empty: none."""


def map_tensor(path: Path, dtype: str, shape: tuple[int, ...], offset: int) -> Array:
    """A tensor of a file that is known to be long enough, read-only.

    Its pages leave the process's memory together with the array. A tensor that is not aligned to its elements, as
    old writers leave some, gets memory of its own: computing with it would be slow.
    """
    row, count = BY_SHORT[dtype], math.prod(shape)
    if count == 0 or offset % row.bytes:
        with path.open("rb") as file:
            return np.fromfile(file, row.numpy, count, offset=offset).reshape(shape)
    return np.asarray(np.memmap(path, row.numpy, "r", offset, shape))


class SafetensorsFile:
    """One safetensors file of a checkpoint; only its header stays in memory.

    Raises:
        ModelError: it is missing or damaged; names the file and, where there is one, the tensor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ModelError(
                "no such file in the checkpoint", where=str(path), hint="is the download complete?"
            )
        self._header = Header(path, ModelError, "download it again")

    def names(self) -> list[str]:
        """The names of all tensors."""
        return self._header.names()

    def entry(self, key: str) -> StoredTensor:
        """Type, shape and place of a tensor; nothing of it is read."""
        try:
            found = self._header.entry(key)
        except KeyError:
            hint = "the checkpoint does not fit its config.json"
            raise ModelError(f"no tensor {key!r}", where=str(self.path), hint=hint) from None
        return StoredTensor(self.path.name, found.dtype, found.shape, found.offset, found.float8)

    def read(self, key: str) -> Array:
        """The tensor of that name, mapped: its pages are read when they are used."""
        entry = self.entry(key)
        return map_tensor(self.path, entry.dtype, entry.shape, entry.offset)
