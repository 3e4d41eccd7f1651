"""Proves that a cut model computes what the original computes.

`reference.py` runs the original, `check.py` runs the ring on the same inputs and compares, `report.py` is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partc.pipeline.contract import Progress, no_progress

if TYPE_CHECKING:
    from partc.verify.report import Report


def verify_build(
    build: Path,
    prompts: Sequence[str] = (),
    tokens: int = 64,
    *,
    model: str | None = None,
    progress: Progress = no_progress,
) -> Report:
    """See `partc.verify.check.verify_build`; heavy libraries are imported when it is called."""
    from partc.verify.check import verify_build as check

    return check(build, prompts, tokens, model=model, progress=progress)
