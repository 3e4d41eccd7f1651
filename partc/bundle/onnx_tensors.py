"""Reads initializers of an ONNX file; external data is opened only where it is safe."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from partc.errors import ModelError
from partc.frontend.onnx_file import check_external, read_onnx
from partc.frontend.safetensors import map_tensor
from partc.ir.types import BY_ONNX
from partc.ir.weights import Array


class OnnxTensors:
    """The initializers of one ONNX model; inline data (at most 2 GB) stays in memory, external on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = {tensor.name: tensor for tensor in read_onnx(path).graph.initializer}

    def read(self, key: str) -> Array:
        """The initializer of that name.

        Raises:
            ModelError: there is none, or its external data is missing, too short or refused.
        """
        tensor = self.tensors.get(key)
        if tensor is None:
            raise self._error(
                key, "there is no such initializer", "was the file changed since it was imported?"
            )
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return np.array(onnx.numpy_helper.to_array(tensor))
        return self._read_external(tensor)

    def _read_external(self, tensor: onnx.TensorProto) -> Array:
        # Checked again at the moment of reading: between import and emission the file may have been replaced.
        file = check_external(tensor, self.path)
        row = BY_ONNX.get(tensor.data_type)
        if row is None:
            raise self._error(tensor.name, "its element type is one that partc does not know", None)
        entry = {item.key: item.value for item in tensor.external_data}
        count, offset = math.prod(tensor.dims), int(entry.get("offset", "0"))
        length = int(entry.get("length", str(count * row.bytes)))
        if length != count * row.bytes or offset + length > file.stat().st_size:
            message = f"expected {count * row.bytes} bytes of external data, found {length}"
            raise self._error(tensor.name, message, "copy the model again, with its data files")
        return map_tensor(file, row.short, tuple(tensor.dims), offset)

    def _error(self, key: str, message: str, hint: str | None) -> ModelError:
        return ModelError(message, where=f"{self.path}: initializer {key}", hint=hint)


@cache
def external_files(path: Path) -> frozenset[Path]:
    """The files that hold data of an ONNX model."""
    found = OnnxTensors(path).tensors.values()
    return frozenset(
        check_external(tensor, path) for tensor in found if tensor.data_location == onnx.TensorProto.EXTERNAL
    )
