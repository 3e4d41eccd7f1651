"""Checks of passes and targets before the long work: everything that is known to fail later is said at once.

Each pass of a list must find the stage that it requires, options must have values that exist, and a target must have
its tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from partc.errors import InternalError, UserError
from partc.ir.graph import Module
from partc.ir.verify import SPECIFICATIONS
from partc.pipeline.contract import Pass
from partc.pipeline.registry import PASSES, load_pass, load_target
from partc.planner.solve import load_strategy

if TYPE_CHECKING:
    from partc.config.devices import DeviceConfig, DevicesConfig

CUT_RULES = ("eq1", "eq1+frontier", "all")
"""Those of `find-cuts`, whose package is not imported from here."""

_STAGES = list(SPECIFICATIONS)


def check_settings(passes: Sequence[Pass]) -> None:
    """Refuse a cut rule or a strategy that does not exist, before anything runs.

    Raises:
        UserError: names those that do.
    """
    for step in passes:
        rule = getattr(step, "rule", None)
        if rule is not None and rule not in CUT_RULES:
            raise UserError(
                f"unknown cut rule {rule!r}", where=step.name, hint=f"rules: {', '.join(CUT_RULES)}"
            )
        if strategy := getattr(step, "strategy", None):
            load_strategy(strategy)


def check_fresh(passes: Sequence[Pass]) -> None:
    """The same as `check_order` for a model that is yet to be imported, as far as that can be known.

    An importer may leave a model with all sizes, never with sub-modules.
    """
    _check(dict.fromkeys(_STAGES[_STAGES.index("sized") + 1 :], "an imported model is not"), passes)


def check_order(module: Module, passes: Sequence[Pass]) -> None:
    """Refuse a list in which a pass would find less than it requires, before anything runs.

    Raises:
        UserError: names the pass, what it misses, and the pass to put before it.
    """
    _check(_missing(module), passes)


def _check(missing: dict[str, str], passes: Sequence[Pass]) -> None:
    """Refuse the first pass that requires one of the stages in `missing` (stage → why it does not hold)."""
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


def check_targets(devices: DevicesConfig, *, tools: bool) -> None:
    """Refuse options that a device's target does not have or that do not fit together; with `tools` missing tools too.

    Raises:
        UserError: `where` names the device and the option.
    """
    for name, device in devices.devices.items():
        with _naming(name):
            target = load_target(device.target, device.target_options)
            target.check_options()
        if tools:
            with _naming(name, _default_note(device)):
                target.check()


def _default_note(device: DeviceConfig) -> str:
    """A note behind what a missing tool calls for: users who named no target do not know whose it is."""
    chosen = device.chosen.get("target")
    return f" (devices.yaml names no target, and gets `target: {chosen}`)" if chosen else ""


@contextmanager
def _naming(device: str, note: str = "") -> Iterator[None]:
    """Errors of a target's with the device, and a note behind their hints."""
    try:
        yield
    except UserError as error:
        where = f"device {device}: {error.where}" if error.where else f"device {device}"
        hint = f"{error.hint}{note}" if error.hint else error.hint
        raise type(error)(error.message, where=where, hint=hint) from None
