"""Reads tensors of a checkpoint one at a time.

| the leaf's file | read as |
| --- | --- |
| `*.safetensors`, `*.gguf` | a container, its header once, each tensor mapped |
| `*.onnx` | initializers of an ONNX model, inline or external |
| anything else | `partc.frontend.checkpoint.open_reader(info)`: weights that are made, not stored |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from partc.bundle.onnx_tensors import OnnxTensors, external_files
from partc.format.files import Stamp, stamp
from partc.frontend.containers import CONTAINERS, open_container
from partc.ir.graph import ModelInfo
from partc.ir.weights import Array, Leaf

Reader = Callable[[Leaf], Array]


def open_tensors(info: ModelInfo) -> Reader:
    """A reader of the model's checkpoint; files are opened on first use.

    Raises (when called):
        ModelError: a file or a tensor is missing or damaged; names file and key.
    """
    folder = Path(info.folder)

    @cache
    def open_file(name: str) -> Callable[[str], Array]:
        if name.endswith(tuple(CONTAINERS)):
            return open_container(folder / name).read
        if name.endswith(".onnx"):
            return OnnxTensors(folder / name).read
        return _made_weights(info, name)

    return lambda leaf: open_file(leaf.file)(leaf.key)


def _made_weights(info: ModelInfo, name: str) -> Callable[[str], Array]:
    from partc.frontend.checkpoint import open_reader

    reader = open_reader(info)
    return lambda key: reader(Leaf(name, key))


def fingerprint(info: ModelInfo, names: Iterable[str]) -> list[Stamp]:
    """The stamps of files of the model's folder, and of files that they refer to; -1 where there is none."""
    folder = Path(info.folder)
    paths = {folder / name for name in names}
    paths |= {other for path in paths if path.suffix == ".onnx" for other in external_files(path)}
    return [stamp(path) for path in sorted(paths)]
