"""The files of a device's folder, held against build.json."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from partc.errors import BundleError
from partc.format.build import FileEntry
from partc.format.digests import file_digest
from partc.format.names import BUILD_FILE, KEYS_FOLDER, PLACEMENT_FILE, PLACEMENTS_FOLDER, RUNNER_FILE
from partc.format.reading import RECOMPILE, refuse_link, unreadable


def hash_folder(folder: Path) -> dict[str, FileEntry]:
    """Path relative to `folder` → digest and size of every file in it, sorted by path; O(bytes of the folder)."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): FileEntry(file_digest(path), path.stat().st_size)
        for path in files
    }


def verify_files(folder: Path, files: Mapping[str, FileEntry], later: Container[str] = ()) -> None:
    """Hold every file of a device's folder against the digest in its build; O(bytes of the bundle).

    Those in `later` are left to `verify_file`, once they are needed.

    Raises:
        BundleError: naming the first file that is missing, changed, not listed, or a link.
    """
    for name in sorted(set(_walk(folder)) - set(files)):
        hint = f"remove it, or {RECOMPILE}"
        raise BundleError("not a part of this bundle", where=str(folder / name), hint=hint)
    for name, entry in sorted(files.items()):
        if name not in later:
            verify_file(folder, name, entry)


def verify_file(folder: Path, name: str, entry: FileEntry) -> None:
    """Hold one file against its digest; O(bytes of the file).

    Raises:
        BundleError: it is missing, changed, or a link.
    """
    path = _plain(folder / name)
    try:
        same = path.stat().st_size == entry.bytes and file_digest(path) == entry.sha256
    except OSError as error:
        raise unreadable(path, error) from None
    if not same:
        raise _damaged(path)


def read_verified(folder: Path, name: str, entry: FileEntry) -> bytes:
    """The content of a file that has its digest: these very bytes, whatever becomes of the file.

    Raises:
        BundleError: see `verify_file`.
    """
    path = _plain(folder / name)
    try:
        content = path.read_bytes() if path.stat().st_size == entry.bytes else b""
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) != entry.bytes or hashlib.sha256(content).hexdigest() != entry.sha256:
        raise _damaged(path)
    return content


def _plain(path: Path) -> Path:
    refuse_link(path)
    if not path.is_file():
        raise BundleError("the file is missing", where=str(path), hint=RECOMPILE)
    return path


def _damaged(path: Path) -> BundleError:
    message = f"the file is damaged: its SHA-256 is not that of {BUILD_FILE}"
    again = "partc compile MODEL --target DEVICES --no-cache"
    hint = f"copy the device folder again; if the build has it so, compile again: {again}"
    return BundleError(message, where=str(path), hint=hint)


def _walk(folder: Path, prefix: str = "") -> Iterator[str]:
    """Names of all files below `folder`, without those that are no part of the build; links are refused."""
    try:
        paths = sorted((folder / prefix).iterdir())
    except OSError as error:
        raise unreadable(folder / prefix, error) from None
    for path in paths:
        name = f"{prefix}{path.name}"
        refuse_link(path)
        if name in (BUILD_FILE, PLACEMENT_FILE, RUNNER_FILE, KEYS_FOLDER, PLACEMENTS_FOLDER):
            continue
        if path.is_dir():
            yield from _walk(folder, f"{name}/")
        else:
            yield name


Stamp = tuple[str, int, int, int]
"""Resolved path, size and times of modification and of change of a file: what is equal on one machine is unchanged.

Copies and archives can give another file the same time of modification; the time of change is the system's own.
"""


def stamp(path: Path) -> Stamp:
    """The stamp of a file; its numbers are -1 where there is none."""
    if not path.is_file():
        return str(path.resolve()), -1, -1, -1
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns
