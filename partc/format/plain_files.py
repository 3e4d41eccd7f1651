"""Files that somebody names or sends: plain files of a sensible size, read whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from partc.errors import BundleError, UserError
from partc.format.first_bytes import HEAD, kind_of

MOST_BYTES = 64 << 20
"""No file that is read whole is larger, unless its reader says so."""


def read_plain_file(
    path: Path,
    refused: type[UserError],
    hint: str | None,
    *,
    missing: str = "no such file",
    most_bytes: int = MOST_BYTES,
) -> bytes:
    """The content of a file; neither a folder, nor a pipe or a device that would be waited for.

    Args:
        path: the file; a symbolic link is followed.
        refused: the error to raise.
        hint: its remedy.
        missing: its message where there is no such file.
        most_bytes: a larger file is refused before it is read.

    Raises:
        UserError: `refused`, in every case where the content cannot be had.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            problem = _problem(os.fstat(file.fileno()), most_bytes)
            if problem is None:
                content = file.read(most_bytes)
                kind = kind_of(content[:HEAD])
                if kind is None:
                    return content
                problem = f"this is {kind.what}"
                # A file that partc has written is made again, whatever took its place.
                hint = hint if issubclass(refused, BundleError) else kind.hint
    except IsADirectoryError:
        problem = "this is a folder, not a file"
    except (FileNotFoundError, NotADirectoryError):
        problem = missing
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        problem = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
    raise refused(problem, where=str(path), hint=hint)


def _open_at_once(path: str, flags: int) -> int:
    """A pipe would else be waited for until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _problem(status: os.stat_result, most_bytes: int) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "this is no plain file"
    return (
        f"the file is too large: {status.st_size} bytes, {most_bytes} at most"
        if status.st_size > most_bytes
        else None
    )


def read_plain_text(
    path: Path,
    refused: type[UserError],
    hint: str | None,
    *,
    missing: str = "no such file",
    most_bytes: int = MOST_BYTES,
) -> str:
    """The same as text: UTF-8, with or without a byte order mark."""
    content = read_plain_file(path, refused, hint, missing=missing, most_bytes=most_bytes)
    return decode(content, str(path), refused, hint)


def decode(content: bytes, where: str, refused: type[UserError], hint: str | None) -> str:
    """UTF-8, with or without a byte order mark, as text; raises `refused` for anything else."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"this is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02x}"
        raise refused(message, where=where, hint=hint) from None


def utf8(argument: str) -> str:
    """An argument of the command line as the UTF-8 text that it is, whatever the locale says.

    Raises:
        UserError: it is something else; names the byte.
    """
    raw = os.fsencode(argument)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        shown = raw.decode(errors="backslashreplace")
        message = f"this argument is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}"
        hint = "give text in UTF-8; rename a file or folder whose name is something else"
        raise UserError(message, where=shown, hint=hint) from None


def is_inside(name: str) -> bool:
    """Whether a relative path stays in its folder."""
    path = PurePosixPath(name)
    return (
        bool(path.parts)
        and "\\" not in name
        and "\0" not in name
        and not path.is_absolute()
        and ".." not in path.parts
    )
