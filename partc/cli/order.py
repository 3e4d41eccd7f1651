"""Whether a list of passes that somebody typed can run: each must find the stage that it requires."""

from __future__ import annotations

from collections.abc import Sequence

from partc.errors import InternalError, UserError
from partc.ir.graph import Module
from partc.ir.verify import SPECIFICATIONS
from partc.pipeline.contract import Pass
from partc.pipeline.registry import PASSES, load_pass

_STAGES = list(SPECIFICATIONS)


def check_order(module: Module, passes: Sequence[Pass]) -> None:
    """Refuse a list in which a pass would find less than it requires, before anything runs.

    Raises:
        UserError: names the pass, what it misses, and the pass to put before it.
    """
    missing = _missing(module)
    for step in passes:
        for stage in _up_to(step.requires):
            if stage in missing:
                raise UserError(
                    f"{step.name} needs a module that is '{stage}': {missing[stage]}",
                    where=f"pass {step.name}",
                    hint=_remedy(stage),
                )
        for stage in _up_to(step.ensures):
            missing.pop(stage, None)


def _missing(module: Module) -> dict[str, str]:
    """The stages that do not hold → why."""
    missing: dict[str, str] = {}
    for stage, holds in SPECIFICATIONS.items():
        try:
            holds(module)
        except InternalError as error:
            missing[stage] = error.message
    return missing


def _up_to(stage: str | None) -> list[str]:
    return [] if stage is None else _STAGES[: _STAGES.index(stage) + 1]


def _remedy(stage: str) -> str:
    makers = (name for name in PASSES if load_pass(name).ensures == stage)
    return "mend the text" if stage == _STAGES[0] else f"run {next(makers)} before it"
