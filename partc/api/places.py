"""Checks of folders and files to write to, made before the long work."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from partc.errors import UserError


def check_folder(folder: Path, option: str, replaced: bool = False) -> None:
    """Refuse a folder that could not be made or written in; makes nothing itself.

    Args:
        folder: as it was given.
        option: with which it was given, for the hint.
        replaced: whether the whole folder is exchanged for another, which its parent must permit too.

    Raises:
        UserError: names the path as it was given, and what stands in its way.
    """
    for path in [folder.absolute().parent, folder] if replaced else [folder]:
        _check(path, folder, f"give another folder with {option}")


def check_file(file: Path, option: str) -> None:
    """Refuse a file that could not be written; its folder is not made for it.

    Raises:
        UserError: as `check_folder`.
    """
    hint = f"give another file with {option}"
    if file.is_dir():
        raise UserError("this is a folder, not a file", where=str(file), hint=hint)
    if file.exists():
        if not os.access(file, os.W_OK):
            raise UserError("this file may not be written", where=str(file), hint=hint)
        return
    if not file.parent.exists():
        raise UserError(f"there is no folder {file.parent}", where=str(file), hint=f"make it, or {hint}")
    _check(file, file, hint)


def _check(path: Path, given: Path, hint: str) -> None:
    """Write beside what is to be made: permissions alone do not tell (a mount, a folder of the system)."""
    place = path
    try:
        place = _existing(path)
        if not place.is_dir():
            what = "this is" if place == given else f"cannot be made: {place} is"
            raise UserError(f"{what} a file, not a folder", where=str(given), hint=hint)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        reason = "nothing can be made there" if isinstance(error, FileNotFoundError) else error.strerror
        raise UserError(f"cannot write in {place}: {reason}", where=str(given), hint=hint) from error


def _existing(path: Path) -> Path:
    """The path itself or the nearest folder above it that is there."""
    for place in (path, *path.parents):
        try:
            place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        return place
    return Path()
