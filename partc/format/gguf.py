"""GGUF files of llama.cpp: the only reader of their headers.

```
"GGUF", version 2 or 3, number of tensors, number of entries
entries     name, type, value; a list is the type and the count of its elements, then those
tensors     name, number of axes, sizes with the innermost first, type, offset from the start of the data
data        from the next multiple of `general.alignment` (32)
```

A file is never trusted: every length is held against the bytes that are left before anything is allocated.
Specification: docs/gguf.md of ggml.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import UserError
from partc.format.dtypes import BY_SHORT
from partc.format.files import Stamp, stamp
from partc.format.first_bytes import HEAD, refuse_other_kind

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_MOST_AXES = 4
_DEEPEST = 4
"""Lists within lists."""
_PLAIN = {0: "f32", 1: "f16", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 30: "bf16"}
"""`ggml_type` of tensors without blocks."""
_UNREAD = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    29: "IQ1_M", 41: "Q1_0",
}  # fmt: skip
"""Types that are known and not read."""
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d"}
_FLOAT, _BOOL, _STRING, _LIST = 6, 7, 8, 9


@dataclass(frozen=True)
class Blocks:
    """A format of tensors: so many weights in so many bytes."""

    name: str
    """The name that `gguf` has for it."""
    number: int
    """In a file's table of tensors: `ggml_type`."""
    weights: int
    bytes: int


@dataclass(frozen=True)
class GgufEntry:
    """One tensor of a file."""

    dtype: str
    """Short name, `f32`; `u8` where it has blocks."""
    shape: tuple[int, ...]
    """As numpy has it; the last size is that of a row in bytes where it has blocks."""
    offset: int
    """The offset of its first byte from the start of the file."""
    blocks: str = ""
    """The format of its blocks; empty: none."""


BLOCKS = (
    Blocks("Q4_0", 2, 32, 18), Blocks("Q4_1", 3, 32, 20), Blocks("Q5_0", 6, 32, 22), Blocks("Q5_1", 7, 32, 24),
    Blocks("Q8_0", 8, 32, 34), Blocks("Q2_K", 10, 256, 84), Blocks("Q3_K", 11, 256, 110),
    Blocks("Q4_K", 12, 256, 144), Blocks("Q5_K", 13, 256, 176), Blocks("Q6_K", 14, 256, 210),
    Blocks("IQ4_NL", 20, 32, 18), Blocks("IQ4_XS", 23, 256, 136), Blocks("TQ1_0", 34, 256, 54),
    Blocks("TQ2_0", 35, 256, 66), Blocks("MXFP4", 39, 32, 17), Blocks("NVFP4", 40, 64, 36),
)  # fmt: skip
"""Every format of blocks that is read (`partc.ir.encodings.blocks`). IQ1, IQ2 and IQ3, whose codebooks are large, are
not."""
_BLOCKS = {form.number: form for form in BLOCKS}


class GgufHeader:
    """The header of one file, read.

    Raises:
        UserError: `refused`: the file is missing, damaged, or of a version or type that is not read.
    """

    def __init__(self, path: Path, refused: type[UserError]) -> None:
        try:
            with path.open("rb") as file:
                head = file.read(HEAD)
            if not head.startswith(MAGIC):
                refuse_other_kind(head, str(path), refused)
                raise refused(
                    "not a GGUF file: it does not begin with GGUF", where=str(path), hint="download it again"
                )
            self.metadata, self.entries = _header(path, refused, stamp(path))  # type: ignore[arg-type]
        except OSError as error:
            raise refused(f"cannot be read: {error.strerror}", where=str(path)) from None


@lru_cache(maxsize=8)
def _header(
    path: Path, refused: type[UserError], version: Stamp
) -> tuple[Mapping[str, Any], Mapping[str, GgufEntry]]:
    """The header of a file that is as its stamp says: a vocabulary takes a while, and a command asks several times."""
    return _Reader(path, refused).header()


class _Reader:
    """Reads a header; `_left` is what may still come."""

    def __init__(self, path: Path, refused: type[UserError]) -> None:
        self._path = path
        self._refused = refused
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = len(MAGIC)

    def header(self) -> tuple[Mapping[str, Any], Mapping[str, GgufEntry]]:
        version = self._number("<I")
        if version not in _VERSIONS:
            big = int(version).to_bytes(4, "big") in {int(v).to_bytes(4, "little") for v in _VERSIONS}
            what = "it is big-endian" if big else f"it is of version {version}"
            raise self._refused(
                f"{what}, which partc does not read", where=str(self._path), hint="convert the model again"
            )
        many, entries = self._number("<Q"), self._number("<Q")
        # An entry has a length, a type and a value; a tensor a length, axes, a size, a type and an offset.
        if entries * 13 > self._left or many * 24 > self._left:
            raise self._damaged("it is shorter than its header says")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._text()
            metadata[key] = self._value(self._number("<I"), 0)
        described = [self._tensor() for _ in range(many)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
            raise self._damaged(f"its alignment is {alignment}")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, GgufEntry] = {}
        for name, sizes, kind, offset in described:
            if name in tensors:
                raise self._damaged(f"there are two tensors {name!r}")
            tensors[name] = self._placed(name, sizes, kind, start + offset)
        return metadata, tensors

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, axes = self._text(), self._number("<I")
        if not 0 <= axes <= _MOST_AXES:
            raise self._damaged(f"tensor {name!r} has {axes} axes")
        sizes = tuple(self._number("<Q") for _ in range(axes))
        return name, sizes, self._number("<I"), self._number("<Q")

    def _placed(self, name: str, sizes: tuple[int, ...], kind: int, offset: int) -> GgufEntry:
        """A tensor, its outermost size first, and the innermost in bytes where it has blocks."""
        if kind in _PLAIN:
            dtype, shape, blocks = _PLAIN[kind], sizes[::-1], ""
        elif kind in _BLOCKS:
            form = _BLOCKS[kind]
            if not sizes or sizes[0] % form.weights:
                raise self._damaged(f"rows of tensor {name!r} are no whole blocks of {form.name}")
            dtype, blocks = "u8", form.name
            shape = (*sizes[:0:-1], sizes[0] // form.weights * form.bytes)
        else:
            known = ", ".join(form.name for form in BLOCKS)
            raise self._refused(
                f"tensor {name!r} is stored as {_UNREAD.get(kind, f'type {kind}')}, which partc does not read",
                where=str(self._path),
                hint=f"give a file in one of F32, F16, BF16, {known}",
            )
        if any(size > len(self._data) for size in shape):  # beside a size of 0 it takes no bytes
            raise self._damaged(f"tensor {name!r} has the shape {list(shape)}")
        if offset + math.prod(shape) * BY_SHORT[dtype].bytes > len(self._data):
            raise self._damaged(f"tensor {name!r} lies outside the file")
        return GgufEntry(dtype, shape, offset, blocks)

    @property
    def _left(self) -> int:
        return len(self._data) - self._at

    def _take(self, count: int) -> bytes:
        if count > self._left:
            raise self._damaged("it ends within its header")
        self._at += count
        return self._data[self._at - count : self._at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _text(self) -> str:
        return self._take(self._number("<Q")).decode("utf-8", "replace")

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            number = self._number(_NUMBERS[kind])
            # 1e-06 of 32 bits is not that of 64: the shortest text of the first is what was meant.
            return float(str(np.float32(number))) if kind == _FLOAT else number
        if kind == _BOOL:
            return bool(self._number("<B"))
        if kind == _STRING:
            return self._text()
        if kind == _LIST and depth < _DEEPEST:
            inner, count = self._number("<I"), self._number("<Q")
            if inner in _NUMBERS:
                size = struct.calcsize(_NUMBERS[inner])
                return np.frombuffer(self._take(count * size), _NUMBERS[inner]).tolist()
            least = {_BOOL: 1, _STRING: 8, _LIST: 12}.get(inner)
            if least is None or count * least > self._left:
                raise self._damaged("a list in its header is longer than the file")
            return [self._value(inner, depth + 1) for _ in range(count)]
        raise self._damaged(f"an entry of its header has the type {kind}")

    def _damaged(self, what: str) -> UserError:
        return self._refused(f"not a GGUF file: {what}", where=str(self._path), hint="download it again")
