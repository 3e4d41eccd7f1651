"""A module through passes, for the command line and for programs: checked first, followed by whoever wants to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partc.api.checks import check_order, check_settings
from partc.api.models import Step, no_step
from partc.ir.graph import Module
from partc.pipeline.contract import Context, Pass, Progress, no_progress
from partc.pipeline.manager import Observer, PassRun, run_passes


@dataclass(frozen=True)
class Following:
    """What is told to whoever follows a pipeline; nothing of it changes what is computed."""

    step: Step = no_step
    """Called when the import begins, and every pass."""
    progress: Progress = no_progress
    """Called within a step."""
    imported: Callable[[Module], None] = lambda module: None
    """Called with the module before the first pass."""
    observers: Sequence[Observer] = ()
    """Called after every pass."""


def telling(progress: Progress | None) -> Following:
    """Steps, and the work within them, by one call: a step is (name, 0, 1) when it begins."""
    if progress is None:
        return Following()
    tell = progress
    return Following(lambda name: tell(name, 0, 1) if name else None, tell)


def run_pipeline(load: Callable[[], Module], passes: Sequence[Pass], following: Following) -> Module:
    """Apply passes to the module that `load` returns, after what can be checked before it.

    Raises:
        UserError: an option of a pass is wrong, the module is not what the first passes require, or a pass refuses it.
    """
    check_settings(passes)
    module = load()
    check_order(module, passes)
    following.imported(module)
    names = [step.name for step in passes] + [""]

    def begin_next(run: PassRun, module: Module) -> None:
        following.step(names[run.index + 1])

    following.step(names[0])
    run_passes(module, passes, Context(following.progress), [*following.observers, begin_next])
    return module
