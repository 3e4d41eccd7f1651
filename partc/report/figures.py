"""Figures of plan.json as text that remembers where in the file it comes from.

Every figure on the page carries its raw value and its places (JSON pointers, RFC 6901), so that a test can
hold each against the file, and a reader can look it up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from partc.config.units import format_bytes, format_seconds
from partc.format.role import Role
from partc.planner.explain.summary import summarize
from partc.planner.groups.lanes import Lanes
from partc.planner.groups.step import follow_shared
from partc.planner.groups.units import units_of
from partc.planner.model.check import read_answer
from partc.planner.model.objective_values import say_rate, unit
from partc.planner.model.objectives import is_less_better
from partc.planner.simulate.build import Build, workflow
from partc.planner.simulate.case import Case, read_case

Json = Mapping[str, Any]


def format_percent(share: float) -> str:
    """`12.5 %`; two digits behind the point below one per cent."""
    return f"{share:.2%}" if 0 < abs(share) < 0.01 else f"{share:.1%}" if abs(share) < 10 else f"{share:.0%}"


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "bytes": format_bytes,
    "seconds": format_seconds,
    "percent": format_percent,
    "rate": say_rate,
    "count": lambda count: f"{count:,.0f}",
    "factor": lambda factor: f"×{factor:.2f}",
    "text": str,
}
"""Name → how a raw value is written."""

_RULES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "value": lambda values: values[0],
    "difference": lambda values: values[0] - sum(values[1:]),
    "sum": sum,
    "product": math.prod,
    "share": lambda values: sum(values[:-1]) / values[-1] if values[-1] else 0.0,
}
"""Name → how a figure follows from the values at its places; a share of nothing is none."""


@dataclass(frozen=True)
class Figure:
    """One figure of the page."""

    value: Any
    """Raw: bytes, seconds, a share, a text."""
    format: str
    """A name of `FORMATS`."""
    rule: str = ""
    """Its formula over the values at `places`; empty: it does not come from plan.json."""
    places: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text that the reader sees."""
        return FORMATS[self.format](self.value)

    @property
    def raw(self) -> str:
        """The raw value as JSON."""
        return json.dumps(self.value)


class Plan:
    """A plan.json that makes figures of its values, and the build that it stands in."""

    def __init__(self, data: Json, build: Build | None = None, where: str = "plan.json") -> None:
        """A plan of parsed JSON.

        Raises:
            UserError: it is no feasible plan, a damaged one, or the build's programs are of another one.
        """
        self.data = data
        self.case = read_case(data, where)
        answer, predicted = read_answer(data, self.case.problem, where)
        self.build = build
        self.workflow = workflow(self.case, build)
        self.summary = summarize(self.case.problem, answer, predicted)
        self.problem: Json = data["problem"]
        self.answer: Json = data["answer"]
        self.predicted = predicted
        self.phases = predicted.phases
        self.stages = predicted.phases[0].stages
        self.groups = _groups(self.case, len(self.stages))
        """The entries of `stages` that are one stage of the model: those of the devices that share it."""
        names = [str(device["name"]) for device in self.problem["devices"]]
        used = list(dict.fromkeys(stage.device for stage in self.stages))
        self.used = used
        """Names of the devices in use, in ring order."""
        self.devices = [*used, *(name for name in names if name not in used)]
        """All devices; the place in this list is a device's colour."""
        self.index_of = {name: index for index, name in enumerate(names)}
        """Device → its place in the problem."""

    def figure(self, format: str, *places: str, rule: str = "value") -> Figure:
        """The figure that follows from the values at `places`."""
        return Figure(_RULES[rule]([self.at(place) for place in places]), format, rule, places)

    def at(self, place: str) -> Any:
        """The value at a JSON pointer; raises KeyError or IndexError where there is none."""
        value: Any = self.data
        for part in place.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value

    @property
    def is_latency(self) -> bool:
        """Whether the value of the plan is seconds, and not steps per second."""
        return is_less_better(self.case.problem.objective)

    @property
    def unit(self) -> str:
        """The unit that one step of the plan makes: a model that generates makes a token."""
        return unit(self.case.problem)

    @property
    def spreads(self) -> bool:
        """Whether a latency is the mean over the steps of a request: one prefill, then tokens that take less."""
        return self.is_latency and len(self.phases) > 1

    @property
    def overheads(self) -> Mapping[str, Mapping[str, float]]:
        """Device → call_s and step_s, as the plan has them; empty where nothing is measured."""
        times = self.answer.get("explain", {}).get("times") or {}
        found: Mapping[str, Mapping[str, float]] = times.get("overheads", {})
        return found

    @property
    def units(self) -> int:
        """The number of these units that a step makes."""
        return self.case.problem.batch if self.unit == "token" else 1

    @property
    def roles(self) -> Mapping[str, Role]:
        """Device → its role; empty where there is a plan alone."""
        return self.build.roles if self.build else {}

    @cached_property
    def lanes(self) -> Mapping[str, Lanes]:
        """Phase → the lanes of a step, where stages have several devices; else empty."""
        steps = {phase.name: phase for phase in self.case.problem.steps}
        return {
            name: follow_shared(self.case.problem, steps[name], stages).lanes
            for name, stages in self.case.phases.items()
        }

    def in_flight(self, requests: int) -> int:
        """The number of requests, of so many, that are under way at once: a build takes max_requests."""
        return min(requests, self.build.max_requests) if self.build else requests


def _groups(case: Case, count: int) -> tuple[range, ...]:
    if not case.phases:
        return tuple(range(place, place + 1) for place in range(count))
    sizes = [len(unit.devices) for unit in units_of(case.phases[case.problem.steps[0].name])]
    return tuple(range(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True))


def pointer(*parts: object) -> str:
    """A JSON pointer of its parts."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)
