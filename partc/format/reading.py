"""Reading a bundle's JSON into its structs: every fault is a BundleError that names file, key and remedy."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from partc.errors import BundleError
from partc.format.json_text import read_json

RECOMPILE = "compile again: partc compile MODEL --target DEVICES, and copy the whole device folder"

_T = TypeVar("_T")
_COMPLAINT = re.compile(r"(?P<message>.*?)(?: - at `(?:key` in `)?\$\.?(?P<key>.*)`)?", re.DOTALL)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        BundleError: it is missing, a link or a folder, cannot be read, or holds something else.
    """
    refuse_link(path)
    raw = read_json(path, BundleError, RECOMPILE, missing="the file is missing")
    if not isinstance(raw, dict):
        raise BundleError("not a JSON object", where=str(path), hint=RECOMPILE)
    return raw


def check_format(raw: Mapping[str, Any], known: str, where: str) -> None:
    """Refuse files of other formats, and of other versions of this one.

    Raises:
        BundleError: says which partc reads it, or how to make a new one.
    """
    found = raw.get("format")
    if found == known:
        return
    is_version = isinstance(found, str) and found.startswith(known.split("/")[0] + "/")
    hint = "install the partc that compiled it, or compile again with this one" if is_version else RECOMPILE
    raise BundleError(f"format: {found!r} cannot be read, this partc reads {known!r}", where=where, hint=hint)


def convert(raw: object, kind: type[_T], where: str) -> _T:
    """The struct that JSON data describe.

    Raises:
        BundleError: names the key and what is expected there.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        found = _COMPLAINT.fullmatch(str(error))  # "Expected `int`, got `str` - at `$.epoch`"
        assert found is not None
        message = found["message"][0].lower() + found["message"][1:]
        key = f"{found['key']}: " if found["key"] else ""
        raise BundleError(f"{key}{message}", where=where, hint=RECOMPILE) from None


def refuse_link(path: Path) -> None:
    """Refuse symbolic links, hard links, and anything that is neither a file nor a folder.

    Raises:
        BundleError: it is one of them.
    """
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error) from None
    if stat.S_ISLNK(info.st_mode):
        raise BundleError("a symbolic link has no place in a bundle", where=str(path), hint=RECOMPILE)
    if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
        message = "a hard link has no place in a bundle"
        raise BundleError(message, where=str(path), hint="copy the file instead")
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        raise BundleError("neither a file nor a folder", where=str(path), hint=RECOMPILE)


def unreadable(path: Path, error: OSError) -> BundleError:
    """The error for what the system refuses to read."""
    hint = "give the user of this process the right to read it"
    return BundleError(f"cannot be read: {error.strerror}", where=str(path), hint=hint)
