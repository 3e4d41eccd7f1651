"""SHA256SUMS, as `sha256sum --check` reads it, and the comparison of two releases."""

from __future__ import annotations

import hashlib
from pathlib import Path

from release.errors import ReleaseError

FILE = "SHA256SUMS"


def write_sums(folder: Path) -> None:
    """Write the sums of all files in a folder."""
    lines = [f"{digest}  {name}\n" for name, digest in sums(folder).items()]
    (folder / FILE).write_text("".join(lines), encoding="utf-8")


def named(folder: Path) -> set[str]:
    """The files that the sums in a folder name, and they themselves; none where there are no sums."""
    file = folder / FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {FILE, *(line.partition("  ")[2] for line in lines)} if lines else set()


def sums(folder: Path) -> dict[str, str]:
    """File → SHA-256 of its content, without SHA256SUMS itself."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != FILE)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def check_same(one: Path, other: Path) -> None:
    """Hold two releases of one commit against each other.

    Raises:
        ReleaseError: names the files that differ.
    """
    left, right = sums(one), sums(other)
    different = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    if different:
        raise ReleaseError(f"a second run gives other bytes: {', '.join(different)}")
