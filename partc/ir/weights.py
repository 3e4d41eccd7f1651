"""Weights as references: where a tensor lies and what is done to it on the way, never its values.

```
expr  = leaf | op "(" number ("," expr)+ ")" | expr "|>" step
leaf  = "file" "#" "key"
op    = stack | concat                                 along the axis of that number
      | nested                                         `partc.ir.encodings.mixes.nested`
      | scaled | take | lora | dora                    `partc.ir.encodings.mixes`
step  = transpose(1,0) | reshape(8,64) | slice(axis,start,stop) | pad(axis,zeros) | cast(f16) | add(1.0) | mul(0.5)
      | spread(times)                                  each element so many times, along a new last axis
      | repeat(axis,times)                             the same along an axis that is there
      | quantize(bits,block) | scales(bits,block)      of a matrix [N, K]: `partc.ir.weight_formats`
      | quantize(8,0,first,last,…)                     the columns from `first` to before `last` of quantised rows
      | panels(bits,block,…)                           both, in the order of kernels: `partc.ir.panels`
      | decode(Q4_K) | bits(4) | order(0,4,…) | float8(e4m3) | codes(nf4)      `partc.ir.encodings`
      | integers(bits,block,layout) | factors(…) | offsets(…)                    `partc.ir.encodings.integers`
```

Examples: `"model.safetensors"#"layers.0.q.weight" |> transpose(1,0)`,
`stack(0, "a.safetensors"#"experts.0.w", "a.safetensors"#"experts.1.w") |> cast(f32)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partc.errors import InternalError
from partc.ir.encodings.blocks import decode
from partc.ir.encodings.integers import factors, integers, offsets
from partc.ir.encodings.mixes import MIXES, Mix, nested
from partc.ir.encodings.numbers import bits, codes, float8, order
from partc.ir.panels import panels, panels_of, rows_of_group
from partc.ir.types import BY_SHORT
from partc.ir.weight_formats import QUANTIZE_STEPS

Array = npt.NDArray[np.generic]
Argument = int | float | str


@dataclass(frozen=True)
class Leaf:
    """One tensor of a checkpoint."""

    file: str
    """Path relative to the model folder, which the header of the IR names."""
    key: str
    """Name of the tensor in the file."""


@dataclass(frozen=True)
class Join:
    """Several tensors made one, from the tables `JOINS` and `MIXES`."""

    op: str
    argument: float
    """The axis of `stack` (a new one) and `concat`; what a mix says."""
    parts: tuple[WeightExpr, ...]


@dataclass(frozen=True)
class Step:
    """One transform of a tensor, from the table `STEPS`."""

    op: str
    arguments: tuple[Argument, ...]
    source: WeightExpr


WeightExpr = Leaf | Join | Step


def _slice(array: Array, axis: int, start: int, stop: int) -> Array:
    index = [slice(None)] * array.ndim
    index[axis] = slice(start, stop)
    return array[tuple(index)]


def _pad(array: Array, axis: int, zeros: int) -> Array:
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, zeros)
    return np.pad(array, widths)


STEPS: dict[str, Callable[..., Array]] = {
    "transpose": lambda a, *axes: a.transpose(axes),
    "reshape": lambda a, *shape: a.reshape(shape),
    "slice": _slice,
    "pad": _pad,
    "cast": lambda a, dtype: a.astype(BY_SHORT[dtype].numpy),
    "add": lambda a, number: a + np.asarray(number, a.dtype),
    "mul": lambda a, number: a * np.asarray(number, a.dtype),
    "spread": lambda a, times: np.repeat(a[..., None], times, axis=-1),
    "repeat": lambda a, axis, times: np.repeat(a, times, axis=axis),
    **QUANTIZE_STEPS,
    "panels": panels,
    "decode": decode,
    "bits": bits,
    "order": order,
    "float8": float8,
    "codes": codes,
    "integers": integers,
    "factors": factors,
    "offsets": offsets,
}
"""Every transform that a reference may carry; each takes the array and the arguments in the text."""

VIEWS = frozenset({"transpose", "reshape", "slice"})
"""Transforms that only rearrange elements or drop some."""
ELEMENTWISE = frozenset({"cast", "add", "mul", "float8"})
"""Transforms that change each element by itself."""
ENCODINGS = frozenset({"decode", "bits", "order", "codes", "integers", "factors", "offsets"})
"""Transforms of whole rows that read what others have quantised."""
STORED_STEPS = ("integers", "factors", "offsets")
"""The transforms that together are a quantised form which the checkpoint has already."""
ROW_WISE = ELEMENTWISE | ENCODINGS | {"spread", "panels"} | frozenset(QUANTIZE_STEPS)
"""Transforms whose rows come from the same rows of the source, or from the same groups of rows (`rows_of`)."""

JOINS: dict[str, Callable[..., Array]] = {
    "stack": lambda axis, parts: np.stack(parts, axis),
    "concat": lambda axis, parts: np.concatenate(parts, axis),
    "nested": lambda block, parts: nested(block, *parts),
}
MIXES_OF_ROWS: dict[str, Mix] = {
    **MIXES,
    "panels": Mix(lambda bits, data, scale: panels_of(data, scale, int(bits))),
}
"""Every mix by its name; `panels(bits, data, scales)` lays out what is quantised already."""


def is_row_wise(expr: WeightExpr) -> bool:
    """Whether rows of `expr` come from the same rows of what it is made from, or from the same groups of rows."""
    match expr:
        case Step(op=op):
            return op in ROW_WISE
        case Join(op=op):
            return op in MIXES_OF_ROWS
        case Leaf():
            return False


def rows_of(expr: Step | Join) -> int:
    """Rows of the source that make a row of the result, where that is row-wise; the last may have fewer."""
    match expr:
        case Step(op="panels", arguments=(bits, *_)) | Join(op="panels", argument=bits):
            return rows_of_group(int(bits))
        case _:
            return 1


def leaves(expr: WeightExpr) -> Iterator[Leaf]:
    """All tensors that `expr` reads, in order."""
    match expr:
        case Leaf():
            yield expr
        case Join(parts=parts):
            for part in parts:
                yield from leaves(part)
        case Step(source=source):
            yield from leaves(source)


def has_step(expr: WeightExpr, *ops: str) -> bool:
    """Whether one of these transforms is done on the way to `expr`."""
    match expr:
        case Join(op=op, parts=parts):
            return op in ops or any(has_step(part, *ops) for part in parts)
        case Step(op=op, source=source):
            return op in ops or has_step(source, *ops)
        case Leaf():
            return False


def stored(expr: WeightExpr) -> WeightExpr:
    """The part of `expr` that decides its bytes, whatever its last shape is: equal ones are stored once."""
    while isinstance(expr, Step) and expr.op == "reshape":
        expr = expr.source
    return expr


def materialize(expr: WeightExpr, read: Callable[[Leaf], Array]) -> Array:
    """The values of `expr`; `read` fetches one tensor of the checkpoint.

    Peak memory is the result plus the parts of one join.
    """
    match expr:
        case Leaf():
            return read(expr)
        case Join(op=op, argument=axis, parts=parts) if op in JOINS:
            return JOINS[op](int(axis), [materialize(part, read) for part in parts])
        case Join(op=op, argument=number, parts=parts) if op in MIXES_OF_ROWS:
            return MIXES_OF_ROWS[op].make(number, *(materialize(part, read) for part in parts))
        case Step(op=op, arguments=arguments, source=source) if op in STEPS:
            return STEPS[op](materialize(source, read), *arguments)
    raise InternalError(f"unknown weight transform in {expr}")


def print_expr(expr: WeightExpr) -> str:
    """The text of `expr` in the grammar above."""
    match expr:
        case Leaf(file=file, key=key):
            return f"{json.dumps(file)}#{json.dumps(key)}"
        case Join(op=op, argument=argument, parts=parts):
            return f"{op}({argument}, {', '.join(print_expr(part) for part in parts)})"
        case Step(op=op, arguments=arguments, source=source):
            return f"{print_expr(source)} |> {op}({', '.join(str(a) for a in arguments)})"
