"""Safetensors files: the only reader and the only writer of their headers.

```
8 bytes     length of the header, little-endian
header      {name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [first, last]}, …, "__metadata__": {…}}, JSON
data        from here offsets count
```

A file is never trusted: shapes and offsets are whole numbers, sizes fit types and shapes, and every tensor lies within
the file; that is checked before anything is allocated. The writer pads the header so that the data starts at a multiple
of 64 bytes, and puts tensors whose size is a multiple of 64 first, so that these start at one too; the format allows no
holes between tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Meta

from partc.errors import InternalError, UserError
from partc.format.dtypes import BY_SAFETENSORS, BY_SHORT, Array
from partc.format.first_bytes import HEAD, refuse_other_kind
from partc.format.json_text import parse_json
from partc.format.layouts import ALIGNMENT

_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""
_METADATA = "__metadata__"
FLOAT8 = {"F8_E4M3": "e4m3", "F8_E5M2": "e5m2", "F8_E8M0": "e8m0"}
"""Floats of 8 bits, which numpy has not: their bytes are read. In a header → in the IR's `float8(…)`."""

_Whole = Annotated[int, Meta(ge=0, lt=2**53)]


class _Described(msgspec.Struct):
    """A tensor in a header; other keys are passed over, as the format demands."""

    dtype: str
    shape: tuple[_Whole, ...]
    data_offsets: tuple[_Whole, _Whole]


@dataclass(frozen=True)
class Entry:
    """One tensor of a file."""

    name: str
    dtype: str
    """Short name, `f32`."""
    shape: tuple[int, ...]
    offset: int = 0
    """The offset of its first byte from the start of the file."""
    float8: str = ""
    """The format of floats of 8 bits whose bytes these are; empty: none."""

    @property
    def bytes(self) -> int:
        """Size of its data."""
        return math.prod(self.shape) * BY_SHORT[self.dtype].bytes


class Header:
    """The header of one file, read; tensors are checked one by one, when they are asked for."""

    def __init__(self, path: Path, refused: type[UserError], hint: str | None) -> None:
        """Read it.

        Raises:
            UserError: `refused`: the file cannot be read, or its header is none.
        """
        self._path = path
        self._refused = refused
        self._hint = hint
        try:
            with path.open("rb") as file:
                self._size = path.stat().st_size
                head = file.read(HEAD)
                refuse_other_kind(head, str(path), refused)
                file.seek(8)
                length = int.from_bytes(head[:8], "little")
                if length > min(_MAX_HEADER_BYTES, self._size - 8):
                    raise self._damaged("its header is longer than the file")
                raw = parse_json(file.read(length), str(path), refused, hint)
        except OSError as error:
            raise refused(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from None
        if not isinstance(raw, dict):
            raise self._damaged("its header is not a mapping")
        self._start = 8 + length
        self._raw: Mapping[str, Any] = raw

    def names(self) -> list[str]:
        """The names of all tensors."""
        return [name for name in self._raw if name != _METADATA]

    def entry(self, name: str) -> Entry:
        """Type, shape and place of a tensor; nothing of it is read.

        Raises:
            KeyError: there is no such tensor.
            UserError: it is not understood, lies outside the file, or has an element type that partc does not know.
        """
        if name == _METADATA:
            raise KeyError(name)
        try:
            found = msgspec.convert(self._raw[name], _Described)
        except msgspec.ValidationError as error:
            raise self._damaged(f"tensor {name!r} has an entry that is not understood: {error}") from None
        if found.dtype not in BY_SAFETENSORS and found.dtype not in FLOAT8:
            message = f"tensor {name!r} has the element type {found.dtype}, which partc does not read"
            hint = "give a checkpoint in float32, float16 or bfloat16; `quantize: int4` in model.yaml is partc's own"
            raise self._refused(message, where=str(self._path), hint=hint)
        first, last = found.data_offsets
        float8 = FLOAT8.get(found.dtype, "")
        short = "u8" if float8 else BY_SAFETENSORS[found.dtype].short
        entry = Entry(name, short, found.shape, self._start + first, float8)
        if last - first != entry.bytes or self._start + last > self._size:
            raise self._damaged(f"tensor {name!r} lies outside the file, or its size is wrong")
        return entry

    def _damaged(self, message: str) -> UserError:
        return self._refused(f"damaged: {message}", where=str(self._path), hint=self._hint)


def lay_out(tensors: Iterable[Entry]) -> tuple[bytes, list[Entry]]:
    """The header, and the tensors in the order in which they are to be written, with their offsets."""
    ordered = sorted(tensors, key=lambda entry: (entry.bytes % ALIGNMENT != 0, -BY_SHORT[entry.dtype].bytes))
    fields, firsts, at = {}, [], 0
    for entry in ordered:
        fields[entry.name] = {
            "dtype": BY_SHORT[entry.dtype].safetensors,
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.bytes],
        }
        firsts.append(at)
        at += entry.bytes
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    start = 8 + len(text)
    placed = [replace(entry, offset=start + first) for entry, first in zip(ordered, firsts, strict=True)]
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
