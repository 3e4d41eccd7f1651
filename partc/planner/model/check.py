"""Checks of a plan.json, made once, so that all later steps may rely on it.

Two checks. What a simulation needs, `predicted` where it is there, must be what `evaluate` finds for the problem and
the assignment; so it cannot lack anything. What a report shows besides, `answer`, `overlap` and
`survival`, must be of the form in which partc writes it. Every complaint names the key.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import ValidationError, convert

from partc.config.section import Section, describe
from partc.errors import ConfigError, PlanError
from partc.format.placement import Stages
from partc.format.plan import Plan, Predicted, SharedStages, plain
from partc.planner.model.evaluate import Evaluation
from partc.planner.model.plan_file import AGAIN
from partc.planner.model.problem import Problem

_SAME = 1e-6
"""Figures of one plan differ by less than this part on different machines."""


def check_predicted(plan: Mapping[str, Any], evaluation: Evaluation, where: str) -> None:
    """Refuse a timeline or a value that is not that of the assignment; either may be missing. O(size).

    Raises:
        PlanError: naming the key.
    """
    answer = plan["answer"]
    if "value" in answer:
        _refuse(_differences(answer["value"], evaluation.value, "answer.value"), where)
    if "predicted" in plan:
        _refuse(_differences(plan["predicted"], plain(evaluation.predicted), "predicted"), where)


def read_stages(answer: Mapping[str, Any], where: str) -> tuple[Stages, dict[str, SharedStages]]:
    """The stages of an answer, and those of every phase where some have several devices.

    Raises:
        PlanError: naming the key.
    """
    phases = answer.get("stages", {}) if answer.get("assignment") is None else {}
    try:
        found = Plan.from_json({"assignment": answer.get("assignment"), "stages": phases})
    except ValidationError as error:
        raise PlanError(str(error), where=f"{where}: answer.stages", hint=AGAIN) from error
    if found.stages is None:
        raise PlanError("no sub-module has a device", where=f"{where}: answer.assignment", hint=AGAIN)
    return found.stages, found.phases


def read_answer(plan: Mapping[str, Any], problem: Problem, where: str) -> tuple[Plan, Predicted]:
    """The answer and the timeline of a plan of which everything can be shown, its explanation and overlap too.

    Raises:
        PlanError: naming the key.
    """
    if "predicted" not in plan:
        raise PlanError("the key `predicted` is missing", where=where, hint=AGAIN)
    try:
        _check_answer(Section(plan["answer"], where, ("answer",)))
        _check_overlap(Section(plan, where).section("overlap"), problem)
        _check_survival(Section(plan, where).section("survival"), problem)
        return Plan.from_json(plan["answer"]), convert(plan["predicted"], Predicted)
    except ConfigError as error:
        raise PlanError(error.message, where=error.where, hint=AGAIN) from error
    except ValidationError as error:
        raise PlanError(str(error), where=where, hint=AGAIN) from error


def _check_answer(answer: Section) -> None:
    answer.number("value")
    answer.text("method")
    for key in ("bound", "gap"):
        if answer.require(key, key) is not None:
            answer.number(key)
    answer.require("explain", "explain")
    _check_explain(answer.section("explain"))


def _check_explain(explain: Section) -> None:
    reasons = explain.section("unused")
    for name in reasons.data:
        reasons.text(name)
    for key in ("binding", "returns"):
        if key in explain:
            explain.text(key)
    best = explain.section("best")
    if "text" in best:
        best.text("text")
    shared = explain.data.get("shared", [])
    if not isinstance(shared, list) or not all(isinstance(text, str) for text in shared):
        raise explain.error("expected a list of texts", "shared")
    for entry in explain.sections("what_if"):
        entry.text("text")
        if entry.require("gain_s_per_token", "gain_s_per_token") is not None:
            _finite(entry, "gain_s_per_token")
    for entry in explain.sections("drafts"):
        entry.text("text")
    for tried in explain.sections("batch"):
        tried.whole("batch", 0)
        if not isinstance(tried.require("feasible", "feasible"), bool):
            raise tried.error("expected true or false", "feasible")
        if tried.require("tokens_per_s", "tokens_per_s") is not None or tried.data["feasible"]:
            tried.number("tokens_per_s")
    chosen = explain.section("chosen")
    for device in chosen.data:
        chosen.section(device)
    overheads = explain.section("times").section("overheads")
    for device in overheads.data:
        seconds = overheads.section(device)
        for name in seconds.data:
            seconds.number(name)


def _check_overlap(overlap: Section, problem: Problem) -> None:
    devices = overlap.section("devices")
    for name in devices.data:
        entry = devices.section(name)
        entry.number("needed_bytes")
        entry.number("available_bytes")
        for key in ("movable", "unmovable"):
            indices = entry.require(key, key)
            if not isinstance(indices, list) or not all(_is_index(item, problem) for item in indices):
                raise entry.error("expected a list of sub-modules", key)
    texts = overlap.data.get("texts", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise overlap.error("expected a list of texts", "texts")


def _check_survival(survival: Section, problem: Problem) -> None:
    if survival.data.get("text"):
        survival.text("text")
    for entry in survival.sections("losses"):
        entry.text("text")
        _check_device(entry, "device", problem)
    for entry in survival.sections("mirrors"):
        entry.text("text")
        entry.number("memory_bytes")
        _check_device(entry, "device", problem)
        _check_device(entry, "holder", problem)


def _check_device(entry: Section, key: str, problem: Problem) -> None:
    if entry.text(key) not in problem.device_of:
        raise entry.error("expected one of the devices", key)


def _is_index(value: object, problem: Problem) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(problem.submodules)


def _finite(section: Section, key: str) -> None:
    """A number of either sign."""
    value = section.data[key]
    if not _is_number(value):
        raise section.error(f"expected a number, found {describe(value)}", key)


def _is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )


def _refuse(differences: Iterator[tuple[str, str]], where: str) -> None:
    for place, text in differences:
        raise PlanError(text, where=f"{where}: {place}", hint=AGAIN)


def _differences(found: Any, expected: Any, place: str) -> Iterator[tuple[str, str]]:
    """(place, what is wrong there); keys that nobody knows are no difference."""
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            yield place, f"expected a mapping of keys to values, found {describe(found)}"
            return
        for key, value in expected.items():
            if key in found:
                yield from _differences(found[key], value, f"{place}.{key}")
            else:
                yield place, f"the key `{key}` is missing"
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        yield from _differences_of_list(found, expected, place)
    elif not _is_same(found, expected):
        yield (
            place,
            f"found {describe(found)}, but the problem and the assignment come to {describe(expected)}",
        )


def _differences_of_list(found: Any, expected: Sequence[Any], place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(found, list) or len(found) != len(expected):
        what = f"a list of {len(found)}" if isinstance(found, list) else describe(found)
        yield place, f"expected a list of {len(expected)}, found {what}"
        return
    for index, (item, value) in enumerate(zip(found, expected, strict=True)):
        yield from _differences(item, value, f"{place}[{index}]")


def _is_same(found: Any, expected: Any) -> bool:
    if _is_number(expected):
        return _is_number(found) and math.isclose(found, expected, rel_tol=_SAME, abs_tol=1e-12)
    return bool(found == expected)
