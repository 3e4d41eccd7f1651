"""JSON that nobody vouches for: one strict reader for every file and message.

Strict means: UTF-8; no key twice in one object; no `NaN`, no `Infinity`, no number that a float64 or 64 bits cannot
hold; no half of a surrogate pair, which could not be written again; at most `MOST_LEVELS` levels. Whoever calls it
says which error to raise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from partc.errors import UserError
from partc.format.plain_files import MOST_BYTES, read_plain_file

MOST_LEVELS = 64
"""Lists and objects in each other; deeper ones would overflow the stack of whoever walks over them."""
_MOST = 2**64
"""Whole numbers are smaller in size."""
_MOST_DIGITS = 20


def read_json(
    path: Path,
    refused: type[UserError],
    hint: str | None,
    *,
    missing: str = "no such file",
    most_bytes: int = MOST_BYTES,
) -> Any:
    """The content of a JSON file.

    Raises:
        UserError: `refused`; see `partc.format.plain_files.read_plain_file` and `parse_json`.
    """
    return parse_json(
        read_plain_file(path, refused, hint, missing=missing, most_bytes=most_bytes), str(path), refused, hint
    )


def parse_json(text: str | bytes, where: str, refused: type[UserError], hint: str | None) -> Any:
    """The data of JSON text; O(text).

    Args:
        text: what is read; bytes are UTF-8.
        where: the name of the file in messages; line and column are put behind it.
        refused: the error to raise.
        hint: its remedy.

    Raises:
        UserError: `refused`: it is not JSON, or not strict JSON.
    """
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        data = _DECODER.decode(decoded)
        _check(data)
    except json.JSONDecodeError as error:
        place = f"{where}:{error.lineno}:{error.colno}"
        raise refused(f"not valid JSON: {error.msg}", where=place, hint=hint) from None
    except UnicodeDecodeError as error:
        raise refused(f"not valid JSON: byte {error.start} is no UTF-8", where=where, hint=hint) from None
    except _ValueError as error:
        place = f"{where}{_place(decoded, error.literal)}"
        raise refused(f"not valid JSON: {error}", where=place, hint=hint) from None
    except RecursionError:
        raise refused("nested too deeply", where=where, hint=hint) from None
    return data


class _ValueError(ValueError):
    """A value that may not stand in JSON."""

    def __init__(self, message: str, literal: str = "") -> None:
        super().__init__(message)
        self.literal = literal
        """The text of the value in the file, where it is known."""


def _place(text: str, literal: str) -> str:
    """Line and column of the first place where `literal` stands."""
    at = text.find(literal) if literal else -1
    return "" if at < 0 else f":{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _ValueError(f"the key {twice!r:.60} stands twice in one object", json.dumps(twice))
    return result


def _integer(text: str) -> int:
    value = int(text) if len(text) <= _MOST_DIGITS + 1 else _MOST
    if abs(value) >= _MOST:
        raise _ValueError(f"the number {text:.24} is too large", text)
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _ValueError(f"the number {text:.24} is too large", text)
    return value


def _constant(text: str) -> float:
    raise _ValueError(f"{text} is not a number", text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def _check(data: object) -> None:
    """Refuse what is too deep, and texts that could not be written again; level by level, without recursion."""
    level: list[object] = [data]
    for _ in range(MOST_LEVELS + 1):
        for value in level:
            if isinstance(value, str) and not value.isascii():
                _check_text(value)
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return
        level = list(_inside(containers))
    raise RecursionError


def _inside(containers: list[dict[str, Any] | list[Any]]) -> Iterator[object]:
    for value in containers:
        yield from value
        if isinstance(value, dict):
            yield from value.values()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _ValueError(f"{text!a:.60} has half of a surrogate pair") from None
