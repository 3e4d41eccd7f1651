"""The last line that a runner writes to standard output when it fails: why, for the program that started it."""

from __future__ import annotations

import contextlib

import msgspec

from partc.errors import InternalError, PartcError
from partc.format.message_parts import Problem


class _Line(msgspec.Struct, frozen=True):
    error: Problem


def say_last_words(error: BaseException) -> None:
    """Write the line; nobody may be there any more. Every error that is not raised on purpose is a bug."""
    if not isinstance(error, PartcError):
        error = InternalError(f"{type(error).__name__}: {error}")
    with contextlib.suppress(OSError):
        print(msgspec.json.encode(_Line(Problem.of(error))).decode(), flush=True)


def read_last_words(line: bytes) -> Problem | None:
    """The error that such a line tells of; None for any other line. Bytes that are no UTF-8 are read as U+FFFD."""
    try:
        return msgspec.json.decode(line.decode(errors="replace"), type=_Line).error
    except msgspec.DecodeError:
        return None
