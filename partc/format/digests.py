"""SHA-256 of files and of data: the compiler writes them into bundles, the runner checks them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def canonical_json(data: object) -> str:
    """JSON with sorted keys, one space a level, and a newline at its end: equal data give equal text.

    Characters stand for themselves, in UTF-8, not as escapes.
    """
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def data_digest(data: object) -> str:
    """SHA-256 of the canonical JSON of `data`, 64 hexadecimal digits."""
    # Damaged data may hold half a surrogate pair, which UTF-8 lacks; its digest need only be another.
    return hashlib.sha256(canonical_json(data).encode(errors="surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
