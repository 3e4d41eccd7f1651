"""Safetensors files, read a tensor at a time and never trusted: sizes are checked before anything is allocated."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import ModelError
from partc.ir.types import BY_SAFETENSORS, BY_SHORT
from partc.ir.weights import Array

_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint."""

    file: str
    dtype: str
    """Short name, `bf16`."""
    shape: tuple[int, ...]
    offset: int
    """The offset of its first byte in the file."""


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
    """One safetensors file; only its header stays in memory.

    Raises:
        ModelError: it is missing or damaged; names the file and, where there is one, the tensor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ModelError(
                "no such file in the checkpoint", where=str(path), hint="is the download complete?"
            )
        self.size = path.stat().st_size
        self.start, self.header = self._read_header()

    def _read_header(self) -> tuple[int, dict[str, Any]]:
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_MAX_HEADER_BYTES, self.size - 8):
                raise self._damaged("its header is longer than the file")
            try:
                header = json.loads(file.read(length))
            except ValueError as error:
                raise self._damaged("its header is not JSON") from error
        if not isinstance(header, dict):
            raise self._damaged("its header is not a mapping")
        return 8 + length, header

    def names(self) -> list[str]:
        """The names of all tensors."""
        return [key for key in self.header if key != "__metadata__"]

    def entry(self, key: str) -> StoredTensor:
        """Type, shape and place of a tensor; nothing of it is read."""
        raw = self.header.get(key)
        if key == "__metadata__" or raw is None:
            raise ModelError(
                f"no tensor {key!r}", where=str(self.path), hint="the checkpoint does not fit its config.json"
            )
        if isinstance(raw, dict) and isinstance(raw.get("dtype"), str) and raw["dtype"] not in BY_SAFETENSORS:
            raise ModelError(
                f"tensor {key!r} has the element type {raw['dtype']}, which partc does not read",
                where=str(self.path),
                hint="give a checkpoint in float32, float16 or bfloat16",
            )
        try:
            dtype, shape = BY_SAFETENSORS[raw["dtype"]], tuple(int(size) for size in raw["shape"])
            first, last = (int(offset) for offset in raw["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"tensor {key!r} has an entry that is not understood: {raw}") from error
        fits = (
            first >= 0 and last - first == math.prod(shape) * dtype.bytes and self.start + last <= self.size
        )
        if not fits or min(shape, default=0) < 0:
            raise self._damaged(f"tensor {key!r} lies outside the file, or its size is wrong")
        return StoredTensor(self.path.name, dtype.short, shape, self.start + first)

    def read(self, key: str) -> Array:
        """The tensor of that name, mapped: its pages are read when they are used."""
        entry = self.entry(key)
        return map_tensor(self.path, entry.dtype, entry.shape, entry.offset)

    def _damaged(self, message: str) -> ModelError:
        return ModelError(f"damaged: {message}", where=str(self.path), hint="download it again")
