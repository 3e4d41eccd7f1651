"""Reads tensors of a checkpoint one at a time, so that no more than one is ever in memory.

| the leaf's file | read as |
| --- | --- |
| `*.safetensors` | a safetensors file, its header once, each tensor by offset |
| `*.onnx` | initializers of an ONNX model, inline or external |
| anything else | `partc.frontend.checkpoint.open_reader(info)`: weights that are made, not stored |
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partc.bundle.onnx_tensors import OnnxTensors
from partc.errors import InternalError, ModelError
from partc.ir.graph import ModelInfo, Weight
from partc.ir.types import BY_SAFETENSORS, BY_SHORT
from partc.ir.weights import Array, Leaf, leaves, materialize

Reader = Callable[[Leaf], Array]
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""


def open_tensors(info: ModelInfo) -> Reader:
    """A reader of the model's checkpoint; files are opened on first use.

    Raises (when called):
        ModelError: a file or a tensor is missing or damaged; names file and key.
    """
    folder = Path(info.folder)

    @cache
    def open_file(name: str) -> Callable[[str], Array]:
        if name.endswith(".safetensors"):
            return SafetensorsFile(folder / name).read
        if name.endswith(".onnx"):
            return OnnxTensors(folder / name).read
        return _made_weights(info, name)

    return lambda leaf: open_file(leaf.file)(leaf.key)


def _made_weights(info: ModelInfo, name: str) -> Callable[[str], Array]:
    from partc.frontend.checkpoint import open_reader

    reader = open_reader(info)
    return lambda key: reader(Leaf(name, key))


class SafetensorsFile:
    """One safetensors file; only its header stays in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ModelError(
                "no such file in the checkpoint", where=str(path), hint="is the download complete?"
            )
        self.size = path.stat().st_size
        self.start, self.header = self._read_header()

    def _read_header(self) -> tuple[int, dict[str, Any]]:
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_MAX_HEADER_BYTES, self.size - 8):
                raise self._damaged("its header is longer than the file")
            try:
                header = json.loads(file.read(length))
            except ValueError as error:
                raise self._damaged("its header is not JSON") from error
        if not isinstance(header, dict):
            raise self._damaged("its header is not a mapping")
        return 8 + length, header

    def read(self, key: str) -> Array:
        """The tensor of that name, in memory of its own."""
        entry = self.header.get(key)
        if key == "__metadata__" or not isinstance(entry, dict):
            raise ModelError(
                f"no tensor {key!r}", where=str(self.path), hint="the checkpoint does not fit its config.json"
            )
        try:
            dtype, shape = BY_SAFETENSORS[entry["dtype"]].numpy, tuple(int(size) for size in entry["shape"])
            first, last = (int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"tensor {key!r} has an entry that is not understood: {entry}") from error
        count = math.prod(shape)
        if (
            first < 0
            or last - first != count * dtype.itemsize
            or self.start + last > self.size
            or min(shape, default=0) < 0
        ):
            raise self._damaged(f"tensor {key!r} lies outside the file, or its size is wrong")
        with self.path.open("rb") as file:
            return np.fromfile(file, dtype, count, offset=self.start + first).reshape(shape)

    def _damaged(self, message: str) -> ModelError:
        return ModelError(f"damaged: {message}", where=str(self.path), hint="download it again")


def read_weight(weight: Weight, read: Reader, info: ModelInfo) -> Array:
    """The values of one weight, checked against the type and shape that the graph expects.

    Raises:
        ModelError: they differ; names file, key, expected and found.
    """
    if weight.source is None or weight.dtype is None or weight.shape is None:
        raise InternalError(f"weight %{weight.name} has no source or no size")
    where = ", ".join(
        f"{Path(info.folder) / leaf.file}: {leaf.key}" for leaf in dict.fromkeys(leaves(weight.source))
    )
    expected = (weight.dtype, list(weight.shape))
    try:
        array = materialize(weight.source, read)
    except (ValueError, IndexError) as error:
        found = [list(read(leaf).shape) for leaf in leaves(weight.source)]
        raise ModelError(
            f"expected a tensor that becomes {_type(*expected)}, found {found}",
            where=where,
            hint="does config.json belong to these files?",
        ) from error
    found_type = next(
        (short for short, row in BY_SHORT.items() if row.numpy == array.dtype), str(array.dtype)
    )
    if (found_type, list(array.shape)) != expected:
        raise ModelError(
            f"expected {_type(*expected)}, found {_type(found_type, list(array.shape))}",
            where=where, hint="does config.json belong to these files?",
        )  # fmt: skip
    return array


def _type(dtype: str, shape: object) -> str:
    return f"{dtype}{shape}"


def fingerprint(info: ModelInfo, names: list[str]) -> list[tuple[str, int, int]]:
    """Name, size and modification time of files: what is equal on one machine has not changed."""
    found = []
    for name in sorted(set(names)):
        path = Path(info.folder) / name
        status = os.stat(path) if path.is_file() else None  # noqa: PTH116
        found.append((name, status.st_size if status else -1, status.st_mtime_ns if status else -1))
    return found
