"""References to some indices of a weight along one axis, of a quantised one too.

| weight | along | the reference |
| --- | --- | --- |
| of floats | any axis | a slice for each run of neighbours |
| data and scales of a quantised matrix [N, K] | N | quantised rows of the same rows: each row has its own scales |
| of formats with blocks | K, in whole blocks | quantised blocks of the same blocks: each block has its own scale |
| integers that a checkpoint stores | N, or K in whole blocks | the same rows or blocks of what it stores |
| data of int8 | K | columns of quantised rows, whose scales are those of whole rows |

So the numbers are those of the whole quantised matrix, whichever share they are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import cast

from partc.errors import InternalError
from partc.ir.stored_integers import sliced
from partc.ir.weight_formats import QUANTIZE_STEPS
from partc.ir.weights import ELEMENTWISE, STORED_STEPS, Join, Step, WeightExpr, has_step

Indices = Sequence[int]
Run = tuple[int, int]
"""First and last + 1 of neighbours."""


def slices(source: WeightExpr, axis: int, indices: Indices) -> WeightExpr:
    """The reference to these indices along an axis of a weight, in ascending order; blocks count as indices."""
    if not has_step(source, *QUANTIZE_STEPS, *STORED_STEPS):
        return _of_floats(source, axis, _runs(indices))
    if isinstance(source, Step) and source.op in QUANTIZE_STEPS:
        return _quantised(source, axis, _runs(indices))
    if isinstance(source, Step) and source.op in STORED_STEPS:
        parts = [sliced(source, axis, *run) for run in _runs(indices)]
        if len(parts) == 1:
            return parts[0]
        return Step(source.op, source.arguments, Join("concat", axis, tuple(part.source for part in parts)))
    if isinstance(source, Step) and source.op in ELEMENTWISE:
        return Step(source.op, source.arguments, slices(source.source, axis, indices))
    raise InternalError(f"{source} cannot be divided")


def _quantised(source: Step, axis: int, runs: Sequence[Run]) -> WeightExpr:
    bits, block, *_ = cast("tuple[int, int]", source.arguments)
    if axis == 0:
        return Step(source.op, source.arguments, _of_floats(source.source, 0, runs))
    if not block:
        return Step(source.op, (bits, block, *(end for run in runs for end in run)), source.source)
    columns = [(first * block, last * block) for first, last in runs]  # the last block may end before
    return Step(source.op, source.arguments, _of_floats(source.source, 1, columns))


def _of_floats(source: WeightExpr, axis: int, runs: Sequence[Run]) -> WeightExpr:
    parts = tuple(Step("slice", (axis, *run), source) for run in runs)
    return parts[0] if len(parts) == 1 else Join("concat", axis, parts)


def _runs(indices: Indices) -> list[Run]:
    runs = [
        [index for _, index in run]
        for _, run in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0])
    ]
    return [(run[0], run[-1] + 1) for run in runs]
