"""The tensors of a checkpoint as those of the model: as they are stored, or matrices over the parts that are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from partc.errors import ModelError
from partc.frontend.quantized.methods import Matrix, Quantized
from partc.frontend.quantized.parts import Parts
from partc.frontend.safetensors import StoredTensor
from partc.frontend.symbolic import SymbolicTensor, numbers_of
from partc.ir.weights import Array, Leaf


def model_tensors(
    stored: Mapping[str, StoredTensor],
    quantized: Quantized | None,
    read: Callable[[Leaf], Array],
    folder: Path,
) -> dict[str, SymbolicTensor]:
    """The tensors of the model by the names that a plain checkpoint has for them; O(tensors).

    Args:
        stored: what the files hold, by key.
        quantized: who quantised it; None: nobody.
        read: reads one tensor of the files; only small ones are asked for.
        folder: where the files are, for messages.

    Raises:
        ModelError: parts of a matrix are missing or do not fit together, or the checkpoint is not quantised as its
            config says.
    """
    if quantized is None:
        return {key: numbers_of(Leaf(tensor.file, key), tensor) for key, tensor in stored.items()}
    found: dict[str, SymbolicTensor] = {}
    used: set[str] = set()
    for matrix in quantized.method.matrices:
        for module in _modules(stored, matrix):
            parts = _parts(stored, matrix, module)
            if used.isdisjoint(parts):
                used.update(parts)
                name = f"{module}.{matrix.result}" if matrix.result else module
                given = {_last(key, module, matrix): tensor for key, tensor in parts.items()}
                found[name] = matrix.read(
                    Parts(module, given, quantized.settings, read, folder, matrix.joint)
                )
    if not found and quantized.is_sure:
        raise ModelError(
            f"by its config the checkpoint is quantised by {quantized.method.name}, but no tensor is",
            where=str(folder),
            hint="remove quantization_config from config.json if the weights are plain",
        )
    plain = {
        key: tensor for key, tensor in stored.items() if key not in used and not _is_unused(key, quantized)
    }
    twice = next((key for key in plain if key in found), None)
    if twice is not None:
        raise ModelError(
            f"the checkpoint has {twice} twice: as it is, and quantised by {quantized.method.name}",
            where=str(folder),
            hint="remove one of them from its file: partc does not guess which is meant",
        )
    return {**{key: numbers_of(Leaf(tensor.file, key), tensor) for key, tensor in plain.items()}, **found}


def _modules(stored: Mapping[str, StoredTensor], matrix: Matrix) -> list[str]:
    """The modules that have a part which only this way of storing has, in the order of the files."""
    ends = tuple(f"{matrix.joint}{mark}" for mark in matrix.marks)
    found = {key[: -len(end)]: None for key in stored for end in ends if key.endswith(end)}
    return list(found)


def _parts(stored: Mapping[str, StoredTensor], matrix: Matrix, module: str) -> dict[str, StoredTensor]:
    keys = (f"{module}{matrix.joint}{part}" for part in matrix.parts)
    return {key: stored[key] for key in keys if key in stored}


def _last(key: str, module: str, matrix: Matrix) -> str:
    return key[len(module) + len(matrix.joint) :]


def _is_unused(key: str, quantized: Quantized) -> bool:
    return key.rpartition(".")[2] in quantized.method.unused
