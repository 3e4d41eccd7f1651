"""Reads tensors of a checkpoint one at a time, so that no more than one is ever in memory.

| the leaf's file | read as |
| --- | --- |
| `*.safetensors` | a safetensors file, its header once, each tensor by offset |
| `*.onnx` | initializers of an ONNX model, inline or external |
| anything else | `partc.frontend.checkpoint.open_reader(info)`: weights that are made, not stored |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from partc.bundle.onnx_tensors import OnnxTensors
from partc.errors import InternalError, ModelError
from partc.frontend.safetensors import SafetensorsFile
from partc.ir.graph import ModelInfo, Weight
from partc.ir.types import BY_SHORT
from partc.ir.weights import Array, Leaf, leaves, materialize

Reader = Callable[[Leaf], Array]


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
