"""Runs passes in order: checks contracts, times, observes. Passes themselves neither log nor print."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partc.errors import InternalError
from partc.ir.graph import Module
from partc.ir.verify import verify
from partc.pipeline.contract import Context, Pass


@dataclass(frozen=True)
class PassRun:
    """The record of one pass."""

    index: int
    name: str
    seconds: float
    modified: bool


Observer = Callable[[PassRun, Module], None]
"""Called after every pass: dumping, printing and timing happen in here."""


def run_passes(
    module: Module, passes: Sequence[Pass], context: Context | None = None, observers: Sequence[Observer] = ()
) -> list[PassRun]:
    """Apply `passes` in order to `module`, in place.

    Raises:
        InternalError: a contract between passes is broken; names the pass, those before it, and which side to mend.
        UserError: the input cannot be compiled.
    """
    surroundings = context or Context()
    runs: list[PassRun] = []
    for index, step in enumerate(passes):
        _check(module, step.requires, step, runs, "before")
        start = time.perf_counter()
        modified = step.apply(module, surroundings)
        runs.append(PassRun(index, step.name, time.perf_counter() - start, modified))
        _check(module, step.ensures, step, runs[:-1], "after")
        for observer in observers:
            observer(runs[-1], module)
    return runs


def _check(module: Module, stage: str | None, step: Pass, before: Sequence[PassRun], moment: str) -> None:
    if stage is None:
        return
    try:
        verify(module, stage)
    except InternalError as error:
        earlier = ", ".join(run.name for run in before) or "none"
        mend = (
            f"mend {step.name}"
            if moment == "after"
            else f"mend the passes before it, or run one that ensures '{stage}'"
        )
        raise InternalError(
            f"{moment} {step.name} the module is not '{stage}': {error.message}",
            where=error.where,
            hint=f"{mend} (passes so far: {earlier})",
        ) from error
