"""The table of element types: one row a type, its names in every format and library as columns.

TVM's names are numpy's. The compiler adds how it computes with each (`partc.ir.types`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""Any tensor; `bfloat16` is held as its bits in `uint16`, since numpy has no such type."""


@dataclass(frozen=True)
class ElementType:
    """One row of the table."""

    long: str
    """The name in bundles, messages and model.yaml, `float32`; numpy's, and TVM's."""
    short: str
    """The name in the IR, `f32`."""
    onnx: int
    """The number in `onnx.TensorProto.DataType`."""
    onnx_name: str
    """The name in ONNX's schemas, without `tensor(…)`."""
    safetensors: str
    """The name in a safetensors header, `F32`."""
    held: np.dtype[Any]
    """The little-endian numpy type that holds it."""

    @property
    def bytes(self) -> int:
        """Size of one element in bytes."""
        return int(self.held.itemsize)


def _row(long: str, short: str, onnx: int, onnx_name: str, safetensors: str, held: str) -> ElementType:
    return ElementType(long, short, onnx, onnx_name, safetensors, np.dtype(held))


# fmt: off
ELEMENT_TYPES = (
    _row("float64",  "f64",  11, "double",   "F64",  "<f8"),
    _row("float32",  "f32",  1,  "float",    "F32",  "<f4"),
    _row("float16",  "f16",  10, "float16",  "F16",  "<f2"),
    _row("bfloat16", "bf16", 16, "bfloat16", "BF16", "<u2"),
    _row("int64",    "i64",  7,  "int64",    "I64",  "<i8"),
    _row("int32",    "i32",  6,  "int32",    "I32",  "<i4"),
    _row("int16",    "i16",  5,  "int16",    "I16",  "<i2"),
    _row("int8",     "i8",   3,  "int8",     "I8",   "i1"),
    _row("uint64",   "u64",  13, "uint64",   "U64",  "<u8"),
    _row("uint32",   "u32",  12, "uint32",   "U32",  "<u4"),
    _row("uint16",   "u16",  4,  "uint16",   "U16",  "<u2"),
    _row("uint8",    "u8",   2,  "uint8",    "U8",   "u1"),
    _row("bool",     "bool", 9,  "bool",     "BOOL", "?"),
)
# fmt: on

BY_LONG = {row.long: row for row in ELEMENT_TYPES}
BY_SHORT = {row.short: row for row in ELEMENT_TYPES}
BY_SAFETENSORS = {row.safetensors: row for row in ELEMENT_TYPES}
DTYPES: dict[str, np.dtype[Any]] = {row.long: row.held for row in ELEMENT_TYPES}
"""Long name → little-endian numpy type."""


def as_float32(array: Array, dtype: str) -> npt.NDArray[np.float32]:
    """The numbers of a float tensor whose declared type is `dtype`, as float32."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def as_numbers(array: Array, dtype: str) -> Array:
    """A tensor whose declared type is `dtype` in a type that numpy computes with: bfloat16 becomes float32."""
    return as_float32(array, dtype) if dtype == "bfloat16" else array
