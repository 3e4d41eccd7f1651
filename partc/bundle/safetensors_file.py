"""Writes a safetensors file piece by piece: the header first, from types and shapes alone.

The header is padded so that the data starts at a multiple of 64 bytes, and tensors whose size is a multiple
of 64 come first, so that these start at one too; the format allows no holes between tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from partc.errors import InternalError
from partc.ir.types import BY_SHORT
from partc.ir.weights import Array

ALIGNMENT = 64


@dataclass(frozen=True)
class Entry:
    """One tensor of the file."""

    name: str
    dtype: str
    """Short name, `f32`."""
    shape: tuple[int, ...]
    offset: int = 0
    """The offset of its first byte, from the start of the file."""

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


def write_safetensors(
    path: Path,
    tensors: Iterable[Entry],
    blocks: Callable[[Sequence[str]], Iterable[tuple[str, Array]]],
    progress: Callable[[int, int], None],
    copy: Callable[[BinaryIO, Entry], bool] = lambda file, entry: False,
) -> list[Entry]:
    """Write the file and return its tensors with their offsets.

    Args:
        path: of the file.
        tensors: names, types and shapes; their offsets do not count yet.
        blocks: gives, for the names of tensors, their next elements as (name, block), in any order of the tensors.
        progress: called with (bytes done, bytes in all).
        copy: puts the data of a tensor into the file at its offset; False where it cannot, then `blocks` has to.
    """
    header, placed = lay_out(tensors)
    total, done = sum(entry.bytes for entry in placed), 0
    with path.open("wb") as file:
        file.write(header)
        missing: dict[str, _Cursor] = {}
        for entry in placed:
            if not copy(file, entry):
                missing[entry.name] = _Cursor(entry)
                continue
            done += entry.bytes
            progress(done, total)
        for name, block in blocks(list(missing)):
            missing[name].write(file, block)
            done += block.nbytes
            progress(done, total)
    for cursor in missing.values():
        cursor.check()
    return placed


class _Cursor:
    """The bytes of one tensor that are written."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._done = 0

    def write(self, file: BinaryIO, block: Array) -> None:
        file.seek(self._entry.offset + self._done)
        self._done += block.nbytes
        if self._done > self._entry.bytes:
            self.check()
        file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)

    def check(self) -> None:
        """Raise InternalError unless all of it is written."""
        if self._done != self._entry.bytes:
            raise InternalError(f"tensor {self._entry.name} has {self._done} bytes, not {self._entry.bytes}")
