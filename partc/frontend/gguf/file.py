"""GGUF files as containers of tensors: rows of blocks, mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from partc.errors import ModelError
from partc.format.gguf import GgufHeader
from partc.frontend.safetensors import StoredTensor, map_tensor
from partc.ir.weights import Array


class GgufFile:
    """One GGUF file; only its header stays in memory.

    Raises:
        ModelError: it is missing, damaged, or of a version or type that is not read; names file and tensor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = GgufHeader(path, ModelError)
        self.metadata = header.metadata
        """Key → value: numbers, texts, lists of them."""
        self._entries = header.entries

    def number(self, key: str) -> float | None:
        """A number of the header; None where there is none of that name.

        Raises:
            ModelError: it is something else.
        """
        found: float | None = self._fact(key, (int, float), "a number")
        return found

    def text(self, key: str) -> str | None:
        """A text of the header; see `number`."""
        found: str | None = self._fact(key, str, "a text")
        return found

    def _fact(self, key: str, kinds: Any, what: str) -> Any:
        value = self.metadata.get(key)
        if value is None or (isinstance(value, kinds) and not isinstance(value, bool)):
            return value
        raise ModelError(
            f"{key} of its header should be {what}", where=str(self.path), hint="download it again"
        )

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._entries)

    def entry(self, key: str) -> StoredTensor:
        """Type, shape and place of a tensor: rows of bytes where it has blocks."""
        if key not in self._entries:
            raise ModelError(f"no tensor {key!r}", where=str(self.path))
        found = self._entries[key]
        return StoredTensor(self.path.name, found.dtype, found.shape, found.offset, blocks=found.blocks)

    def read(self, key: str) -> Array:
        """The tensor of that name as it is stored, mapped: its pages are read when they are used."""
        entry = self.entry(key)
        return map_tensor(self.path, entry.dtype, entry.shape, entry.offset)
