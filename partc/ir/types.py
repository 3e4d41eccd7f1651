"""Element types: the short names of the IR (`f32`, `i64`) beside numpy's, ONNX's and safetensors' names."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx


@dataclass(frozen=True)
class ElementType:
    """One row of the table of element types."""

    short: str
    """The IR's name, `f32`."""
    long: str
    """The name in manifests and model.yaml, `float32`."""
    onnx: int
    """`onnx.TensorProto.DataType`."""
    numpy: np.dtype[np.generic]
    safetensors: str
    """The name in a safetensors header, `F32`; empty where the format has none."""

    @property
    def bytes(self) -> int:
        """Size of one element in bytes."""
        return int(self.numpy.itemsize)


_P = onnx.TensorProto
ELEMENT_TYPES = (
    ElementType("f64", "float64", _P.DOUBLE, np.dtype(np.float64), "F64"),
    ElementType("f32", "float32", _P.FLOAT, np.dtype(np.float32), "F32"),
    ElementType("f16", "float16", _P.FLOAT16, np.dtype(np.float16), "F16"),
    ElementType("bf16", "bfloat16", _P.BFLOAT16, np.dtype(ml_dtypes.bfloat16), "BF16"),
    ElementType("i64", "int64", _P.INT64, np.dtype(np.int64), "I64"),
    ElementType("i32", "int32", _P.INT32, np.dtype(np.int32), "I32"),
    ElementType("i16", "int16", _P.INT16, np.dtype(np.int16), "I16"),
    ElementType("i8", "int8", _P.INT8, np.dtype(np.int8), "I8"),
    ElementType("u64", "uint64", _P.UINT64, np.dtype(np.uint64), "U64"),
    ElementType("u32", "uint32", _P.UINT32, np.dtype(np.uint32), "U32"),
    ElementType("u16", "uint16", _P.UINT16, np.dtype(np.uint16), "U16"),
    ElementType("u8", "uint8", _P.UINT8, np.dtype(np.uint8), "U8"),
    ElementType("bool", "bool", _P.BOOL, np.dtype(np.bool_), "BOOL"),
)

BY_SHORT = {row.short: row for row in ELEMENT_TYPES}
BY_LONG = {row.long: row for row in ELEMENT_TYPES}
BY_ONNX = {row.onnx: row for row in ELEMENT_TYPES}
BY_NUMPY = {row.numpy: row for row in ELEMENT_TYPES}
BY_SAFETENSORS = {row.safetensors: row for row in ELEMENT_TYPES}
HALF = frozenset({"f16", "bf16"})
"""Half precision, which not every engine has kernels for."""
