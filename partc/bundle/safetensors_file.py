"""Writes a safetensors file tensor by tensor: the header first, from types and shapes alone.

The header is padded so that the data starts at a multiple of 64 bytes, and tensors whose size is a multiple
of 64 come first, so that these start at one too; the format allows no holes between tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from partc.errors import InternalError
from partc.ir.types import BY_SHORT
from partc.ir.weights import Array

ALIGNMENT = 64
_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class Entry:
    """One tensor of the file."""

    name: str
    dtype: str
    """Short name, `f32`."""
    shape: tuple[int, ...]
    offset: int = 0
    """Of its first byte, from the start of the file."""

    @property
    def bytes(self) -> int:
        """Size of its data."""
        return math.prod(self.shape) * BY_SHORT[self.dtype].bytes


def lay_out(tensors: Iterable[Entry]) -> tuple[bytes, list[Entry]]:
    """The header, and the tensors in the order in which they are to be written, with their offsets."""
    ordered = sorted(tensors, key=lambda entry: (entry.bytes % ALIGNMENT != 0, -BY_SHORT[entry.dtype].bytes))
    ends, at = [], 0
    for entry in ordered:
        ends.append((at, at + entry.bytes))
        at += entry.bytes
    fields = {
        entry.name: {
            "dtype": BY_SHORT[entry.dtype].safetensors,
            "shape": list(entry.shape),
            "data_offsets": list(end),
        }
        for entry, end in zip(ordered, ends, strict=True)
    }
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    start = 8 + len(text)
    placed = [
        Entry(e.name, e.dtype, e.shape, start + first) for e, (first, _) in zip(ordered, ends, strict=True)
    ]
    return len(text).to_bytes(8, "little") + text, placed


def write_safetensors(path: Path, tensors: Iterable[Entry], read: Callable[[str], Array],
                      progress: Callable[[int, int], None]) -> list[Entry]:  # fmt: skip
    """Write the file and return its tensors with their offsets; `read` gives the values of one tensor.

    `progress` is called with (bytes done, bytes in all). Peak memory is one tensor.
    """
    header, placed = lay_out(tensors)
    total, done = sum(entry.bytes for entry in placed), 0
    with path.open("wb") as file:
        file.write(header)
        for entry in placed:
            _write_tensor(file, read(entry.name), entry)
            done += entry.bytes
            progress(done, total)
    return placed


def _write_tensor(file: BinaryIO, array: Array, entry: Entry) -> None:
    if array.nbytes != entry.bytes:
        raise InternalError(f"tensor {entry.name} has {array.nbytes} bytes, not {entry.bytes}")
    if array.flags.c_contiguous:
        array.tofile(file)
        return
    # A transposed tensor goes out in blocks, since a contiguous copy would double the peak.
    rows = max(1, _BLOCK_BYTES * len(array) // max(array.nbytes, 1))
    for start in range(0, len(array), rows):
        np.ascontiguousarray(array[start : start + rows]).tofile(file)
