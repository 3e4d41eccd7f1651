"""Memory that compiled code accepts, and tensors that are mapped into it from files."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError
from partc.runtime.dtypes import DTYPES, Array
from partc.runtime.manifest_types import RECOMPILE

ALIGNMENT = 64
"""Bytes that compiled code expects the address of a tensor to be a multiple of: a cache line."""
_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""Element type of a safetensors file → its name here."""


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros at an aligned address; pages that nobody writes to take no memory."""
    size = math.prod(shape) * dtype.itemsize
    block = np.zeros(size + ALIGNMENT, np.uint8)
    skip = -block.ctypes.data % ALIGNMENT
    return block[skip : skip + size].view(dtype).reshape(shape)


def map_tensors(path: Path) -> dict[str, tuple[Array, str]]:
    """Every tensor of a safetensors file and its element type, mapped, not read; the few that lie askew are copied.

    Raises:
        BundleError: it is no such file.
    """
    try:
        with path.open("rb") as file:
            # A private mapping: tensors count as writeable, which DLPack insists on, and the file stays as it is.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        return {name: _mapped(data, start, entry) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"no safetensors file: {error}", where=str(path), hint=RECOMPILE) from error


def _mapped(data: mmap.mmap, start: int, entry: Mapping[str, Any]) -> tuple[Array, str]:
    name, shape = _NAMES[entry["dtype"]], entry["shape"]
    first = start + entry["data_offsets"][0]
    array = np.frombuffer(data, DTYPES[name], math.prod(shape), first).reshape(shape)
    if array.ctypes.data % ALIGNMENT == 0:
        return array, name
    copy = aligned_zeros(shape, array.dtype)
    copy[...] = array
    return copy, name
