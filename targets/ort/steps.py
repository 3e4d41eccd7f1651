"""Lengths that attention needs in every step; each is computed once a part.

| name | what | type |
| --- | --- | --- |
| sequence | rows of this step | i64[1] |
| ends | valid keys of every row of the batch: position + sequence | i64[batch] |
| total | the largest of them | i64[1] |
| index | 0, 1, … sequence - 1 | i64[sequence] |
"""

from __future__ import annotations

from partc.format.dims import Dim
from partc.ir.graph import Value
from targets.rewrite import Rewriter


def axis_length(r: Rewriter, value: Value, axis: int) -> Value:
    """The size of `value` along `axis`, i64[1]; values with the same symbolic size share one.

    It is read from a graph input of that size where there is one, so that `value` itself may vanish.
    """
    size = value.shape[axis] if value.shape else None
    key = ("length", size if size is not None else (value, axis))
    source, place = _input_of_size(r, size) or (value, axis)
    return r.once(key, lambda: r.op("Shape", [source], "i64", (1,), "length", start=place, end=place + 1))


def _input_of_size(r: Rewriter, size: Dim | None) -> tuple[Value, int] | None:
    found = (
        (value, value.shape.index(size)) for value in r.graph.inputs if value.shape and size in value.shape
    )
    return next(found, None) if isinstance(size, str) else None


def counting(r: Rewriter, length: Value) -> Value:
    """0, 1, … length - 1; `length` is i64[1]."""

    def make() -> Value:
        stop = r.op("Squeeze", [length], "i64", (), "stop")
        return r.op("Range", [r.integer(0), stop, r.integer(1)], "i64", None, "counting")

    return r.once(("counting", length), make)


def key_ends(r: Rewriter, position: Value, sequence: Value) -> Value:
    """Number of keys that each row of the batch has after this step, i64[batch]."""
    make = lambda: r.op("Add", [position, sequence], "i64", position.shape, "ends")  # noqa: E731
    return r.once(("ends", position, sequence), make)


def total_keys(r: Rewriter, position: Value, sequence: Value) -> Value:
    """The largest of `key_ends`, i64[1]."""
    ends = key_ends(r, position, sequence)
    return r.once(("total", ends), lambda: r.op("ReduceMax", [ends], "i64", (1,), "total", keepdims=1))
