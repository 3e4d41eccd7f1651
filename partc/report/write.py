"""Writes the report: the whole page or nothing."""

from __future__ import annotations

import secrets
from pathlib import Path

from partc.report.page import render
from partc.report.sources import Subject


def write_report(subject: Subject, file: Path) -> None:
    """Put the page at `file` in one step.

    Raises:
        OSError: the folder cannot be written in.
    """
    text = render(subject)
    draft = file.with_name(f".{file.name}-{secrets.token_hex(4)}.tmp")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
