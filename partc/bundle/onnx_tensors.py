"""Reads initializers of an ONNX file; external data is opened only where it is safe."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx

from partc.errors import ModelError
from partc.frontend.onnx_file import check_external, read_onnx
from partc.frontend.safetensors import map_tensor
from partc.ir.types import BY_ONNX
from partc.ir.weights import Array
from partc.ir.whole import tensors_in


class OnnxTensors:
    """The initializers of one ONNX model; inline data (at most 2 GB) stays in memory, external on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = dict(tensors_in(read_onnx(path).graph))

    def read(self, key: str) -> Array:
        """The initializer with that address (`partc.ir.whole.tensors_in`).

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
        entry = {item.key: item.value for item in tensor.external_data}
        row = BY_ONNX[tensor.data_type]
        return map_tensor(file, row.short, tuple(tensor.dims), int(entry.get("offset", "0")))

    def _error(self, key: str, message: str, hint: str | None) -> ModelError:
        return ModelError(message, where=f"{self.path}: initializer {key}", hint=hint)


@cache
def external_files(path: Path) -> frozenset[Path]:
    """The files that hold data of an ONNX model."""
    found = OnnxTensors(path).tensors.values()
    return frozenset(
        check_external(tensor, path) for tensor in found if tensor.data_location == onnx.TensorProto.EXTERNAL
    )
