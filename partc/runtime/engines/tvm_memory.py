"""Tensors as TVM sees them, made of numpy's: for a processor in the same memory, for a GPU in its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partc.format.dtypes import DTYPES, Array
from partc.runtime.engines.memory import aligned_zeros


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that the code reads or changes."""

    array: Array
    """As the processor sees it."""
    host: Any
    """The tensor in the array's memory."""
    tensor: Any
    """What the code gets: the same, or another on the GPU."""


class Memory:
    """Tensors where the code computes: on a processor the arrays themselves, on a GPU copies."""

    def __init__(self, ffi: Any, on_gpu: bool) -> None:
        """Everything is made for the first GPU, or for the processor."""
        self._from_array = ffi.from_dlpack
        self._device = ffi.device("cuda", 0) if on_gpu else None
        self._view = ffi.get_global_func("runtime.TVMTensorCreateView")
        self._allocate = ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        self._copy = ffi.get_global_func("runtime.TVMTensorCopyFromTo")

    def place(self, array: Array, dtype: str) -> Buffer:
        """A buffer with the content of `array`: in its very memory if the code can use that."""
        host = self._on_host(array, dtype)
        if self._device is None:
            return Buffer(array, host, host)
        buffer = Buffer(array, host, self._allocate(array.shape, dtype, self._device, None))
        self.update(buffer)
        return buffer

    def update(self, buffer: Buffer) -> None:
        """Let the code see what the processor wrote."""
        if self._device is not None:
            self._copy(buffer.host, buffer.tensor)

    def clear(self, buffer: Buffer) -> None:
        """Fill with zeros a buffer that nobody but the code writes to."""
        if self._device is None:
            buffer.array.fill(0)
        else:
            self._copy(buffer.host, buffer.tensor)  # the processor's side is still as it was made: zeros

    def beginning(self, buffer: Buffer, shape: Sequence[int], dtype: str) -> Any:
        """A tensor of the first elements of a buffer."""
        return self._view(buffer.tensor, shape, dtype, 0)

    def fetch(self, tensor: Any, dtype: str) -> Array:
        """An array of what the code computed: the same memory if it may be."""
        if self._device is not None:
            array = aligned_zeros(tensor.shape, DTYPES[dtype])
            self._copy(tensor, self._on_host(array, dtype))
            return array
        held = self._view(tensor, tensor.shape, "uint16", 0) if dtype == "bfloat16" else tensor
        return np.from_dlpack(held)

    def _on_host(self, array: Array, dtype: str) -> Any:
        tensor = self._from_array(array)
        # numpy has no bfloat16 and holds its bits as whole numbers.
        return self._view(tensor, array.shape, dtype, 0) if dtype == "bfloat16" else tensor
