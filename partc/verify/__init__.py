"""Proves that a cut model computes what the original computes, and says what quantisation changed.

`origin.py` remembers what was compiled and how; `reference.py` runs the original, `uncut.py` the uncut model of a
quantised build. `check.py` starts the ring, `requests.py` asks it what stands in `inputs.py` and compares with what is
right: `right.py` for the original, `quantized.py` for the uncut model. `judge.py` chooses what quantisation is judged
on (a text: `passages.py`), `cost.py` measures it. `report.py` is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    **options: Any,
) -> Report:
    """See `partc.verify.check.verify_build`; heavy libraries are imported when it is called."""
    from partc.verify.check import verify_build as check

    return check(build, prompts, tokens, model=model, progress=progress, **options)
