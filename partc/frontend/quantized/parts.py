"""The stored parts of one matrix, and the expressions that all methods write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import ModelError
from partc.frontend.safetensors import StoredTensor
from partc.frontend.symbolic import SymbolicTensor, numbers_of
from partc.ir.weights import Array, Join, Leaf, Step, WeightExpr

Settings = Mapping[str, Any]
"""The `quantization_config` of a checkpoint."""


@dataclass(frozen=True)
class Parts:
    """What a checkpoint stores of one module."""

    module: str
    """`model.layers.0.self_attn.q_proj`."""
    stored: Mapping[str, StoredTensor]
    """By the last part of their names: `qweight`."""
    settings: Settings
    read: Callable[[Leaf], Array]
    folder: Path
    joint: str = "."
    """What stands between the names of the module and of a part."""

    def __contains__(self, name: str) -> bool:
        return name in self.stored

    def tensor(self, name: str) -> StoredTensor:
        """A part that must be there.

        Raises:
            ModelError: it is not.
        """
        if name not in self.stored:
            raise self.error(f"has no {name}", hint="download the checkpoint again: it is not whole")
        return self.stored[name]

    def expr(self, name: str) -> WeightExpr:
        """A part as it is stored, floats of 8 bits as numbers."""
        stored = self.tensor(name)
        return numbers_of(Leaf(stored.file, self.key(name)), stored).expr

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a part."""
        return self.tensor(name).shape

    def matrix(self, name: str) -> tuple[int, int]:
        """The shape of a part that is a matrix.

        Raises:
            ModelError: it is none.
        """
        shape = self.shape(name)
        if len(shape) != 2:
            raise self.error(f"has a {name} of shape {list(shape)}, where a matrix is expected")
        return shape[0], shape[1]

    def words(self, name: str) -> tuple[int, int]:
        """The shape of a matrix of words of 32 bits, in which integers are packed.

        Raises:
            ModelError: it is none: as floats it would have lost bits.
        """
        stored = self.tensor(name)
        if stored.dtype != "i32":
            raise self.error(
                f"has a {name} of {stored.dtype}, where words of i32 are expected",
                hint="whatever saved it has cast it: take the file as it was published",
            )
        return self.matrix(name)

    def values(self, name: str) -> Array:
        """The numbers of a small part."""
        return self.read(Leaf(self.tensor(name).file, self.key(name)))

    def scales(self, name: str) -> Array:
        """The same as float32, where the part holds scales.

        Raises:
            ModelError: one of them is no finite number, of which a matrix would be made that has none either.
        """
        found = self.values(name).astype(np.float32)
        if not np.isfinite(found).all():
            raise self.error(
                f"has a scale in {name} that is no finite number",
                hint="the checkpoint is damaged: download it again",
            )
        return found

    def key(self, name: str) -> str:
        """The name of a part in its file."""
        return f"{self.module}{self.joint}{name}"

    def error(self, message: str, hint: str | None = None) -> ModelError:
        """An error about this module."""
        return ModelError(f"{self.module} {message}", where=str(self.folder), hint=hint)


def turned(expr: WeightExpr) -> WeightExpr:
    """A matrix transposed."""
    return Step("transpose", (1, 0), expr)


def shifted(expr: WeightExpr, by: int) -> WeightExpr:
    """Integers without a sign, moved by a number."""
    signed: WeightExpr = Step("cast", ("i16",), expr)
    return Step("add", (by,), signed) if by else signed


def scaled(
    shape: tuple[int, ...], block: int, data: WeightExpr, scale: WeightExpr, zeros: WeightExpr | None = None
) -> SymbolicTensor:
    """The matrix [N, K] of integers, and of scales and zero points [N, blocks]; a block of 0 is a whole row."""
    parts = (data, scale) if zeros is None else (data, scale, zeros)
    return SymbolicTensor(Join("scaled", block, parts), shape, "f32")


def picked(each: WeightExpr, index: WeightExpr) -> WeightExpr:
    """Numbers of groups [N, groups] for every input, whose group an index names."""
    return Join("take", 1, (each, index))


def in_order(index: Array, block: int) -> bool:
    """Whether inputs belong to groups one after the other, so that nothing is permuted."""
    flat = index.reshape(-1)
    return bool(np.array_equal(flat, np.arange(flat.size) // block))


def common_value(values: Array) -> int | None:
    """The number that all of them are; None where they differ, or there are none."""
    if values.size == 0:
        return None
    first = values.reshape(-1)[0]
    return int(first) if bool((values == first).all()) else None
