"""Compares a cut model with the original, and measures the cost of quantisation.

| file | content |
| --- | --- |
| `check.py` | the verification: starts the ring and the model that it must equal |
| `inputs.py`, `requests.py` | the built-in requests; each one sent to the ring and compared |
| `expectation.py` | the expected results: the original's, or those of the uncut quantised model |
| `reference.py`, `onnx_reference.py`, `uncut.py` | the models themselves: transformers', an ONNX file, the uncut one |
| `uncut_ring.py` | the uncut model of one that reads a source, a picture or a sound: a ring of one device |
| `compare.py`, `pieces.py` | arrays beside arrays; pieces of values that devices send each other |
| `cut_graph.py`, `provenance.py` | the tensor of the original that a value is: by origin, or computed from known ones |
| `operations.py` | tensors that transformers computes, by the lines of code that ask for them |
| `drafts.py` | requests with guessed tokens beside the same without |
| `cost.py`, `passages.py` | the cost of quantisation, and the text on which it is measured |
| `origin.py` | the model and the options that a build was compiled from |
| `report.py` | the result |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partc.pipeline.contract import Progress, no_progress

if TYPE_CHECKING:
    from partc.verifier.report import Report


def verify_build(
    build: Path,
    prompts: Sequence[str] = (),
    tokens: int = 64,
    *,
    model: str | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Report:
    """See `partc.verifier.check.verify_build`; heavy libraries are imported when it is called."""
    from partc.verifier.check import verify_build as check

    return check(build, prompts, tokens, model=model, progress=progress, **options)
