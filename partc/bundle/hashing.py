"""Hashes of files and of data: what identifies an artifact. The runner checks them with the same functions."""

from __future__ import annotations

from pathlib import Path

from partc.format.build import FileEntry
from partc.format.digests import canonical_json, data_digest, file_digest

__all__ = ["canonical_json", "hash_data", "hash_folder"]

hash_data = data_digest


def hash_folder(folder: Path) -> dict[str, FileEntry]:
    """Path relative to `folder` → sha256 and size of every file in it, sorted by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): FileEntry(file_digest(path), path.stat().st_size)
        for path in files
    }
