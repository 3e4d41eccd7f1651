"""The files of a bundle, held against the manifest."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from partc.errors import BundleError
from partc.format.digests import file_digest
from partc.runtime.manifest_types import KEYS_FOLDER, MANIFEST_FILE, RECOMPILE, FileEntry


def verify_listed(folder: Path, files: Mapping[str, FileEntry]) -> None:
    """Hold every file of the folder against its digest; O(bytes of the bundle).

    Raises:
        BundleError: naming the first file that is missing, changed, not listed, or a link.
    """
    found = set(_walk(folder))
    for name in sorted(found - set(files)):
        raise BundleError(
            "not a part of this bundle", where=f"{folder / name}", hint=f"remove it, or {RECOMPILE}"
        )
    for name, entry in sorted(files.items()):
        verify_file(folder, name, entry)


def verify_file(folder: Path, name: str, entry: FileEntry) -> None:
    """Hold one file against its digest; O(bytes of the file).

    Raises:
        BundleError: it is missing, changed, or a link.
    """
    path = folder / name
    refuse_link(path, str(path))
    if not path.is_file():
        raise BundleError("the file is missing", where=str(path), hint=RECOMPILE)
    if path.stat().st_size != entry.bytes or file_digest(path) != entry.sha256:
        message = "the file is damaged: its SHA-256 is not the manifest's"
        again = "partc compile MODEL --target DEVICES --no-cache"
        hint = f"copy the device folder again; if the build has it so, compile again: {again}"
        raise BundleError(message, where=str(path), hint=hint)


def _walk(folder: Path, prefix: str = "") -> Iterator[str]:
    """Names of all files below `folder`, without the manifest and the keys; links are refused."""
    for path in sorted((folder / prefix).iterdir()):
        name = f"{prefix}{path.name}"
        if name in (MANIFEST_FILE, KEYS_FOLDER):
            continue
        refuse_link(path, str(path))
        if path.is_dir():
            yield from _walk(folder, f"{name}/")
        else:
            yield name


def refuse_link(path: Path, where: str) -> None:
    """Refuse symbolic links, hard links, and what is neither a file nor a folder.

    Raises:
        BundleError: it is one of them.
    """
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(info.st_mode):
        raise BundleError("a symbolic link has no place in a bundle", where=where, hint=RECOMPILE)
    if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
        raise BundleError("a hard link has no place in a bundle", where=where, hint="copy the file instead")
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        raise BundleError("neither a file nor a folder", where=where, hint=RECOMPILE)
