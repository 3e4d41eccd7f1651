"""The last line that a runner writes to standard output when it fails: why, for the program that started it."""

from __future__ import annotations

import contextlib

import msgspec

from partc.errors import Cause, PartcError, RunError


class LastWords(msgspec.Struct, frozen=True):
    """An error of a runner, as an error of the program that started it is made of it again."""

    cause: Cause
    message: str
    where: str | None
    hint: str | None


class _Line(msgspec.Struct, frozen=True):
    error: LastWords


def last_words_of(error: BaseException) -> LastWords:
    """The fields of an error; everything that is not raised on purpose is a bug."""
    if not isinstance(error, PartcError):
        return LastWords("bug", f"{type(error).__name__}: {error}", None, None)
    cause: Cause = error.cause if isinstance(error, RunError) else "input" if error.exit_code == 1 else "bug"
    return LastWords(cause, error.message, error.where, error.hint)


def say_last_words(error: BaseException) -> None:
    """Write the line; nobody may be there any more."""
    with contextlib.suppress(OSError):
        print(msgspec.json.encode(_Line(last_words_of(error))).decode(), flush=True)


def read_last_words(line: bytes) -> LastWords | None:
    """The content of such a line; None for any other."""
    try:
        return msgspec.json.decode(line, type=_Line).error
    except msgspec.DecodeError:
        return None
