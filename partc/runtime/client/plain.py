"""Options of a request as the plain values that messages hold: those of numpy are taken, others refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real

import numpy as np

from partc.errors import RunError
from partc.format.message_parts import Sampling

MOST_COUNT = 2**31
"""No count and no token id is larger."""


def whole(value: object, name: str) -> int:
    """A whole number from 0 on.

    Raises:
        RunError: it is none, or too large.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise _not(value, name, "a whole number")
    number = int(value)
    if not 0 <= number < MOST_COUNT:
        raise RunError(f"{number} is out of range", where=name, hint=f"0 to {MOST_COUNT - 1}")
    return number


def flag(value: object, name: str) -> bool:
    """True or false; raises as `whole`."""
    if not isinstance(value, bool | np.bool_):
        raise _not(value, name, "True or False")
    return bool(value)


def token_list(value: object, name: str) -> list[int]:
    """Token ids; raises as `whole`."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _not(value, name, "a list of token ids")
    return [_token(token, name) for token in value]


def _token(value: object, name: str) -> int:
    if isinstance(value, Integral) and int(value) < 0:
        raise RunError(f"token {value} is below 0", where=name, hint="token ids count from 0")
    return whole(value, name)


def plain_sampling(value: object) -> Sampling:
    """A choice of tokens whose numbers are Python's own; raises as `whole`."""
    if not isinstance(value, Sampling):
        raise _not(value, "sampling", "a Sampling")
    return sampling_of({name: getattr(value, name) for name in Sampling.__struct_fields__})


def sampling_of(given: Mapping[str, object]) -> Sampling:
    """A choice of tokens by the names of its fields.

    Raises:
        RunError: a value is of another type, or out of range.
    """
    found: dict[str, int | float] = {}
    for name, value in given.items():
        if not isinstance(value, Real) or isinstance(value, bool):
            raise _not(value, name, "a number")
        if name in ("temperature", "top_p"):
            found[name] = _float(value)
        elif isinstance(value, Integral):
            found[name] = int(value)
        else:
            raise _not(value, name, "a whole number")
    return Sampling(**found)  # type: ignore[arg-type]


def _float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _not(value: object, name: str, wanted: str) -> RunError:
    return RunError(f"{value!r} is not {wanted}", where=name, hint=f"give {wanted}, or leave `{name}` out")
