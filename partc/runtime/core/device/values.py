"""Values of a program: how long they are used, and what instructions that compute nothing make of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partc.format.dims import cut_sizes
from partc.format.dtypes import Array
from partc.format.message_parts import Likely
from partc.format.program import Program


def last_uses(program: Program) -> list[frozenset[str]]:
    """For each instruction, the values that nothing after it uses."""
    last: dict[str, int] = {name: index for index, item in enumerate(program) for name in item.reads}
    return [frozenset(name for name, at in last.items() if at == index) for index in range(len(program))]


def likely(drawn: Sequence[Array], wanted: Sequence[int]) -> tuple[tuple[Likely, ...], ...]:
    """Ids and logarithms, both (batch, likely), as they travel: of each row as many as its request wants.

    `wanted` has one number a request: for each row, or for all rows of a request alone.
    """
    ids, logprobs = drawn
    counts = [*wanted] * len(ids) if len(wanted) == 1 else wanted
    rows = zip(ids.tolist(), logprobs.tolist(), counts, strict=True)
    return tuple([tuple(map(Likely, tokens[:count], told[:count])) for tokens, told, count in rows])


def total_of(terms: Sequence[Array]) -> Array:
    """Their sum in float32, from the first to the last; none of them is changed."""
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total


def cut(whole: Array, count: int, axis: int) -> list[Array]:
    """`count` parts of a value, each without gaps."""
    ends = np.cumsum(cut_sizes(whole.shape[axis], count))[:-1]
    return [np.ascontiguousarray(part) for part in np.split(whole, ends, axis)]
