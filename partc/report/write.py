"""Writes the report: the whole page or, where something is missing in the plan, nothing."""

from __future__ import annotations

import secrets
from pathlib import Path

from partc.errors import BundleError
from partc.report.page import render
from partc.report.sources import Subject


def write_report(subject: Subject, file: Path) -> None:
    """Put the page at `file` in one step.

    Raises:
        BundleError: plan.json lacks something.
    """
    try:
        text = render(subject)
    except (KeyError, IndexError, TypeError) as error:
        raise BundleError(
            f"the plan cannot be drawn, since it is damaged: {error!r}",
            where=str(subject.file),
            hint="write it again: partc compile, or partc plan --json",
        ) from error
    draft = file.with_name(f".{file.name}-{secrets.token_hex(4)}.tmp")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
