"""The groups of docs/README.md: `| users | [wire.md](wire.md) | … |` begins one, an empty first column continues it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from release.errors import ReleaseError

_ROW = re.compile(r"^\| *([^|]*?) *\| *\[[^\]]+\]\(([^)]+\.md)\) *\|", re.MULTILINE)


@dataclass(frozen=True)
class Group:
    """Manuals for the same readers."""

    readers: str
    manuals: tuple[str, ...]
    """Names of files in docs/, in the order of the table."""


def groups(index: str) -> list[Group]:
    """The groups in the text of docs/README.md.

    Raises:
        ReleaseError: it has no such table.
    """
    found: dict[str, list[str]] = {}
    for readers, manual in _ROW.findall(index):
        if not readers and not found:
            raise ReleaseError(f"docs/README.md names no readers for {manual}\n  hint: fill the first column")
        found.setdefault(readers or next(reversed(found)), []).append(manual)
    if not found:
        raise ReleaseError(
            "docs/README.md has no table of manuals\n  hint: | readers | [file](file) | contents |"
        )
    return [Group(readers, tuple(manuals)) for readers, manuals in found.items()]
