"""The gain of one change of the devices or links: more memory, twice a bandwidth, twice a speed.

Every question is a problem of its own that is solved again. How many may be asked follows from the sizes of
the problem and never from the clock, so that plan.json is the same on every machine; the others are answered
for the assignment as it is, which is a plan of the changed problem too: the gain is at least that. Devices
that can be exchanged for each other are asked about once. Where a search ends before its proof, the gain is at
least what is said, and that nothing is gained is not: then "no better plan was found".

A speed is doubled by halving every time of the device, calls included: the problem does not tell what of a
time is overhead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from partc.format.placement import Stage
from partc.planner.exact.bound import operations
from partc.planner.exact.solution import Solve
from partc.planner.exact.tables import group_devices
from partc.planner.model.change import with_bandwidths, with_speeds
from partc.planner.model.effort import QUESTION, WHAT_IFS
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.objective_values import (
    is_better,
    is_same,
    say_difference,
    say_value,
    seconds_per_token,
)
from partc.planner.model.objectives import best_of
from partc.planner.model.problem import Problem

MORE_BYTES = 2**30
FACTOR = 2.0


class Answer(NamedTuple):
    """The value of a plan after a change."""

    value: float | None
    """None: not known."""
    replanned: bool
    """Whether a new plan was looked for; else the value is that of the plan as it is."""
    proven: bool = True
    """Whether no plan of the changed problem is better than the value; of a new plan."""


@dataclass(frozen=True)
class Question:
    """One change."""

    change: str
    """memory | bandwidth | speed."""
    devices: tuple[str, ...]
    """The device, or the two ends of the link."""
    alike: tuple[str, ...] = ()
    """Devices that could stand in the place of the one that is asked about."""
    in_use: bool = True
    """Whether the plan sends anything over the link; True for devices."""
    always: bool = True
    """Whether the answer of a new plan is worth telling where nothing is gained."""

    def apply(self, problem: Problem) -> Problem:
        """The problem with the change made."""
        if self.change == "memory":
            return _with_memory(problem, self.devices[0])
        if self.change == "speed":
            return with_speeds(problem, {self.devices[0]: FACTOR})
        a, b = self.devices
        return with_bandwidths(problem, {(a, b): FACTOR, (b, a): FACTOR})

    def subject(self, problem: Problem) -> dict[str, object]:
        """The keys of an entry that name the change."""
        if self.change == "memory":
            return {"change": self.change, "device": self.devices[0], "bytes": MORE_BYTES, **self._others}
        if self.change == "speed":
            return {"change": self.change, "device": self.devices[0], "factor": FACTOR, **self._others}
        return {"change": self.change, "link": self.link(problem), "factor": FACTOR}

    def link(self, problem: Problem) -> str:
        """`a-b`, or `a->b` where there is no way back."""
        a, b = self.devices
        if (b, a) not in problem.link_of:
            return f"{a}->{b}"
        return f"{a}-{b}" if (a, b) in problem.link_of else f"{b}->{a}"

    def words(self, problem: Problem) -> str:
        """The change in words."""
        if self.change == "memory":
            return f"1 GiB more memory on {self._device}"
        if self.change == "speed":
            return f"twice the speed of {self._device}"
        return f"twice the bandwidth {self.link(problem)}"

    @property
    def _others(self) -> dict[str, object]:
        return {"alike": list(self.alike)} if self.alike else {}

    @property
    def _device(self) -> str:
        return self.devices[0] + (f" (or one of {len(self.alike)} like it)" if self.alike else "")


def solve_operations(problem: Problem) -> float:
    """Operations of the dynamic programme of one solve."""
    sizes = (0, *(len(members) for members in group_devices(problem)[1:]))
    return operations(sizes, len(problem.submodules))


def what_ifs(
    problem: Problem,
    evaluation: Evaluation,
    solve: Solve | None,
    *,
    free: bool,
    memory_may_bind: bool = True,
) -> list[dict[str, object]]:
    """The entries of `answer.explain.what_if`, the largest gain first and what is not known last.

    Args:
        problem: as planned.
        evaluation: of the plan that the gains are counted from.
        solve: looks for best plans; None where that would take too long.
        free: whether a change may change the assignment; else more memory is no question.
        memory_may_bind: unless it is proven that no plan that ignores memory limits is better than this one.
    """
    value = evaluation.value or 0.0
    known = _Answers(problem, evaluation, solve)
    entries = []
    for question in questions(problem, evaluation, free=free, links=solve is not None):
        if question.change == "memory" and not memory_may_bind:
            entries.append(_entry(problem, question, Answer(value, False), value))
            continue
        answer = known.answer(question)
        note = "" if answer.replanned or not free else " (with the same plan)"
        tell = question.always if answer.replanned else question.in_use
        if tell or (answer.value is not None and is_better(problem, answer.value, value)):
            entries.append(_entry(problem, question, answer, value, note))
    return sorted(entries, key=partial(_by_gain, seconds_per_token(problem, value)))


class _Answers:
    """The values after changes, as long as the work lasts."""

    def __init__(self, problem: Problem, evaluation: Evaluation, solve: Solve | None) -> None:
        self._stages = tuple(
            Stage((run.first, run.last), (run.device,)) for run in evaluation.phases[0].stages
        )
        self._problem, self._solve, self._left = problem, solve, WHAT_IFS

    def answer(self, question: Question) -> Answer:
        """The value with the change made."""
        changed = question.apply(self._problem)
        kept = evaluate(changed, self._stages).value
        needed = solve_operations(changed) if self._solve is not None else math.inf
        if self._solve is None or needed > min(QUESTION.programme, self._left):
            return Answer(None if question.change == "memory" else kept, False)
        self._left -= needed
        best = self._solve(changed, None)
        found = best.solution.value if best.solution else None
        values = [value for value in (kept, found) if value is not None]
        value = best_of(changed.objective)(values) if values else None
        return Answer(value, True, best.proven)


def questions(
    problem: Problem, evaluation: Evaluation, *, free: bool, links: bool = True
) -> Iterator[Question]:
    """All changes, those of devices and links in use first; each once for devices that are alike.

    Where the assignment stays, devices that are alike differ by what they hold: each in use is asked about.
    Without `links` those of the links that nothing is sent over are left out.
    """
    used = list(dict.fromkeys(use.device for use in evaluation.memory))
    rank = {
        name: place for place, name in enumerate([*used, *(n for n in problem.device_of if n not in used)])
    }
    types = group_devices(problem) if free else [[name] for name in used]
    devices = []
    for members in types:
        first, *alike = sorted(members, key=rank.__getitem__)
        if _can_run(problem, first):
            devices.append((first, tuple(alike)))
    devices.sort(key=lambda item: rank[item[0]])
    if free:
        yield from (Question("memory", (name,), alike) for name, alike in devices)
    yield from (Question("speed", (name,), alike) for name, alike in devices)
    kinds = {name: kind for kind, members in enumerate(types) for name in members}
    yield from _link_questions(problem, evaluation, sorted(rank, key=rank.__getitem__), kinds, links)


def _link_questions(
    problem: Problem,
    evaluation: Evaluation,
    names: Sequence[str],
    kinds: Mapping[str, int],
    others: bool,
) -> Iterator[Question]:
    """Links in use, then those between devices in use, then those that end at one; once for each two kinds."""
    used = {use.device for use in evaluation.memory}
    messages = [m for timeline in evaluation.phases for m in timeline.messages]
    in_use = dict.fromkeys(tuple(sorted((m.sender, m.receiver), key=names.index)) for m in messages)
    pairs: list[tuple[str, ...]] = list(in_use)
    if others:
        near = [pair for pair in itertools.combinations(names, 2) if pair[0] in used]
        pairs += sorted(near, key=lambda pair: pair[1] not in used)
    asked = set()
    for a, b in pairs:
        kind = tuple(sorted((kinds[a], kinds[b])))
        linked = (a, b) in problem.link_of or (b, a) in problem.link_of
        if linked and kind not in asked:
            asked.add(kind)
            yield Question("bandwidth", (a, b), in_use=(a, b) in in_use, always={a, b} <= used)


def _entry(
    problem: Problem,
    question: Question,
    answer: Answer,
    before: float,
    note: str = "",
) -> dict[str, object]:
    words, value = question.words(problem), answer.value
    subject = {**question.subject(problem), "replanned": answer.replanned}
    if value is None:
        nothing = dict.fromkeys(("value", "s_per_token", "gain_s_per_token"))
        return {**subject, **nothing, "text": f"{words}: not computed: the problem is large"}
    seconds = seconds_per_token(problem, value)
    gain = 0.0 if is_same(value, before) else max(0.0, seconds_per_token(problem, before) - seconds)
    numbers = {"value": value, "s_per_token": seconds, "gain_s_per_token": gain}
    effect = "no change" if answer.proven else "no better plan was found"
    if gain:
        effect = f"{say_value(problem, value)}, {say_difference(problem, value, before)}"
    return {**subject, **numbers, "text": f"{words}: {effect}{note}"}


def _by_gain(whole: float, entry: Mapping[str, object]) -> float:
    """Orders by gain; what differs by rounding alone stays in its order."""
    gain = entry["gain_s_per_token"]
    return -round(gain / whole, 9) if isinstance(gain, float) and whole else math.inf


def _can_run(problem: Problem, name: str) -> bool:
    return any(
        all(name in phase.time_s[j] for phase in problem.steps) for j in range(len(problem.submodules))
    )


def _with_memory(problem: Problem, name: str) -> Problem:
    devices = tuple(
        replace(device, memory_bytes=device.memory_bytes + MORE_BYTES) if device.name == name else device
        for device in problem.devices
    )
    return replace(problem, devices=devices)
