"""The kinds of states: what a step writes of one, and what follows from that.

| kind | a step | how it grows | one sequence outside an engine | gone on from, for another prompt or behind a loss |
| --- | --- | --- | --- | --- |
| `rows` | writes the rows at `position` | a row a token | `[positions, heads, d]` | from any row |
| `whole` | rewrites all of it | not at all | one row of one head, `[1, 1, numbers]` | from its last step alone |

A kind is a name of `StateKind` and a keyword of `by_kind`, through which every room learns what differs between them:
with another one mypy names each place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar, assert_never, get_args

StateKind = Literal["rows", "whole"]
KINDS: tuple[StateKind, ...] = get_args(StateKind)
USUAL: StateKind = "rows"
"""What texts leave out."""

_T = TypeVar("_T")


def by_kind(kind: StateKind, *, rows: _T, whole: _T) -> _T:
    """What holds for a state of a kind; no place has an "else"."""
    match kind:
        case "rows":
            return rows
        case "whole":
            return whole
        case _:
            assert_never(kind)


def is_rewritten(kind: StateKind) -> bool:
    """Whether each step writes all of a state, so that it is that of its last step alone."""
    return by_kind(kind, rows=False, whole=True)


def is_any_rewritten(kinds: Iterable[StateKind]) -> bool:
    """Whether each step writes all of one of several."""
    return any(map(is_rewritten, kinds))


def has_rows_alone(kinds: Iterable[StateKind]) -> bool:
    """Whether there are states, and all of them can be gone on from at any row."""
    every = list(kinds)
    return bool(every) and not is_any_rewritten(every)
