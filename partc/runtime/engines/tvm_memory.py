"""Tensors on a GPU as TVM sees them, and numpy's arrays that they are copied from and to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partc.format.dtypes import DTYPES, Array
from partc.format.safetensors import Entry
from partc.runtime.engines.memory import aligned_zeros, map_tensors


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that the code reads or changes."""

    array: Array
    """The array as the processor sees it."""
    host: Any
    """The tensor in the array's memory."""
    tensor: Any
    """The tensor that the code gets."""


class Memory:
    """Tensors where the code computes."""

    def __init__(self, ffi: Any) -> None:
        """Everything is made for the first GPU."""
        self._from_array = ffi.from_dlpack
        self._device = ffi.device("cuda", 0)
        self._view = ffi.get_global_func("runtime.TVMTensorCreateView")
        self._allocate = ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        self._copy = ffi.get_global_func("runtime.TVMTensorCopyFromTo")

    def place(self, array: Array, dtype: str) -> Buffer:
        """A buffer with the content of `array`, aligned."""
        host = self._on_host(array, dtype)
        buffer = Buffer(array, host, self._allocate(array.shape, dtype, self._device, None))
        self.update(buffer)
        return buffer

    def update(self, buffer: Buffer) -> None:
        """Let the code see what the processor wrote."""
        self._copy(buffer.host, buffer.tensor)

    def store(self, buffer: Buffer, array: Array, dtype: str) -> None:
        """Let the code see what `fetch` gave and was changed since."""
        self._copy(self._on_host(array, dtype), buffer.tensor)

    def beginning(self, buffer: Buffer, shape: Sequence[int], dtype: str) -> Any:
        """A tensor of the first elements of a buffer."""
        return self._view(buffer.tensor, shape, dtype, 0)

    def fetch(self, tensor: Any, dtype: str) -> Array:
        """A copy of a tensor that the code computed."""
        array = aligned_zeros(tensor.shape, DTYPES[dtype])
        self._copy(tensor, self._on_host(array, dtype))
        return array

    def read_weights(self, path: Path, entries: Sequence[Entry]) -> list[Any]:
        """Tensors of a file; raises BundleError where it is none."""
        mapped = map_tensors(path)
        return [self.place(*mapped[entry.name]).tensor for entry in entries]

    def _on_host(self, array: Array, dtype: str) -> Any:
        tensor = self._from_array(array)
        # numpy has no bfloat16 and holds its bits as whole numbers.
        return self._view(tensor, array.shape, dtype, 0) if dtype == "bfloat16" else tensor
