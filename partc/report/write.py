"""Writes the report: the whole page or nothing."""

from __future__ import annotations

from pathlib import Path

from partc.atomic import write_file
from partc.report.page import render
from partc.report.sources import Subject


def write_report(subject: Subject, file: Path) -> None:
    """Put the page at `file` in one step.

    Raises:
        OSError: the folder cannot be written in.
    """
    write_file(file, render(subject))
