"""Hashes of files and of data: what identifies an artifact."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical_json(data: object) -> str:
    """JSON with sorted keys, one space a level, and a newline at its end: equal data give equal text."""
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def hash_data(data: object) -> str:
    """SHA-256 of the canonical JSON of `data`, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_folder(folder: Path) -> dict[str, dict[str, Any]]:
    """Path relative to `folder` → sha256 and size of every file in it, sorted by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"sha256": hash_file(path), "bytes": path.stat().st_size}
        for path in files
    }
