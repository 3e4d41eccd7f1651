"""Steps that requests share, computed one request after the other: for engines without code for several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from partc.format.build import Submodule, TensorType
from partc.format.dims import symbols
from partc.format.dtypes import Array

Run = Callable[[int, Sequence[Array], Mapping[str, int]], list[Array]]
"""(slot, inputs, sizes) → outputs of one request."""
RunGroup = Callable[[Sequence[int], Sequence[Array]], list[Array]]
"""(slots, inputs) → outputs of some requests."""


def run_apart(
    module: Submodule,
    types: Mapping[str, TensorType],
    slots: Sequence[int],
    inputs: Sequence[Array],
    dims: Mapping[str, int],
    run: Run,
) -> list[Array]:
    """The outputs of a shared step (`Engine.run_shared`), which are those of its requests alone; O(slots) runs."""
    own = {**dims, "batch": 1}
    groups = [1] * len(slots)
    return run_in_groups(module, types, groups, slots, inputs, lambda few, given: run(few[0], given, own))


def run_in_groups(
    module: Submodule,
    types: Mapping[str, TensorType],
    groups: Sequence[int],
    slots: Sequence[int],
    inputs: Sequence[Array],
    run: RunGroup,
) -> list[Array]:
    """The outputs of a shared step that is computed in groups of so many requests."""
    if len(groups) == 1:
        return run(slots, inputs)
    ends = np.cumsum(groups)
    given = [_parts(array, types[name], ends) for name, array in zip(module.inputs, inputs, strict=True)]
    made = [
        run(slots[end - size : end], [parts[place] for parts in given])
        for place, (size, end) in enumerate(zip(groups, ends, strict=True))
    ]
    return [
        np.concatenate(each, axis) if (axis := _row_axis(types[name])) is not None else each[0]
        for name, each in zip(module.outputs, zip(*made, strict=True), strict=True)
    ]


def _row_axis(kind: TensorType) -> int | None:
    """The axis of a value along which the sequences of a step lie; None: it is the same for all."""
    return next((axis for axis, dim in enumerate(kind.shape) if "batch" in symbols(dim)), None)


def _parts(array: Array, kind: TensorType, ends: Array) -> list[Array]:
    """The parts of a value that belong to groups which end there; all get what is the same for all."""
    axis = _row_axis(kind)
    return [array] * len(ends) if axis is None else np.split(array, ends[:-1], axis)
