"""Tensors as TVM sees them, made of numpy's: for a processor in the same memory, for a GPU in its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError
from partc.format.build import Submodule
from partc.format.dtypes import DTYPES, Array
from partc.format.reading import RECOMPILE
from partc.runtime.engines.memory import aligned_zeros, map_tensors


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that the code reads or changes."""

    array: Array
    """The array as the processor sees it."""
    host: Any
    """The tensor in the array's memory."""
    tensor: Any
    """The tensor that the code gets: the same memory, or another on the GPU."""


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

    def read(self, buffer: Buffer, dtype: str) -> Array:
        """The content of a buffer after the code ran: its own memory on a processor, else a copy."""
        return buffer.array if self._device is None else self.fetch(buffer.tensor, dtype)

    def store(self, buffer: Buffer, array: Array, dtype: str) -> None:
        """Let the code see what `read` gave and was changed since."""
        if self._device is not None:
            self._copy(self._on_host(array, dtype), buffer.tensor)

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


class Weights:
    """The weights of loaded sub-modules; a tensor that several of them name is placed once."""

    def __init__(self, memory: Memory, folder: Path) -> None:
        """`folder` is that of the bundle."""
        self._memory = memory
        self._folder = folder
        self._mapped: dict[str, Mapping[str, tuple[Array, str]]] = {}
        self._placed: dict[tuple[str, str], Any] = {}
        self._of: dict[str, list[tuple[str, str]]] = {}

    def add(self, module: Submodule, names: Sequence[str]) -> None:
        """Map the files of a sub-module and place the tensors of those names.

        Raises:
            BundleError: a file is none of tensors, or none of them has a name.
        """
        for file in module.weights:
            if file not in self._mapped:
                self._mapped[file] = map_tensors(self._folder / file)
        homes = {name: file for file in module.weights for name in self._mapped[file]}
        for name in names:
            if name not in homes:
                message = f"no file of {module.name} has the weight {name!r}"
                raise BundleError(message, where=str(self._folder), hint=RECOMPILE)
        keys = [(homes[name], name) for name in names]
        for file, name in keys:
            if (file, name) not in self._placed:
                self._placed[file, name] = self._memory.place(*self._mapped[file][name]).tensor
        self._of[module.name] = keys

    def of(self, submodule: str) -> list[Any]:
        """The tensors of a sub-module in the order of the arguments."""
        return [self._placed[key] for key in self._of[submodule]]

    def remove(self, submodule: str) -> None:
        """Let go of what no other sub-module needs."""
        del self._of[submodule]
        used = {key for keys in self._of.values() for key in keys}
        self._placed = {key: tensor for key, tensor in self._placed.items() if key in used}
        files = {file for file, _ in used}
        self._mapped = {file: tensors for file, tensors in self._mapped.items() if file in files}
