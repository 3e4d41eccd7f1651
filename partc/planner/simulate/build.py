"""Simulation of a build: the programs of its placement, at the costs that its plan.json predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from partc.errors import BundleError
from partc.format.placement import Stages
from partc.format.program import Run
from partc.format.reading import RECOMPILE
from partc.format.role import Role, read_roles
from partc.planner.model.problem import Phase
from partc.planner.model.stages import devices_in, held, places_of
from partc.planner.simulate.case import Case, planned_workflow
from partc.planner.simulate.script import Script, Workflow


@dataclass(frozen=True)
class Build:
    """The roles of a build, for a simulation."""

    folder: Path
    roles: Mapping[str, Role]
    """Device -> role of the devices in use, in ring order."""

    @property
    def plan_id(self) -> str:
        """The plan id of all its devices."""
        return next(iter(self.roles.values())).plan_id

    @property
    def max_requests(self) -> int:
        """Requests that the build takes at once; the others wait."""
        return next(iter(self.roles.values())).model.max_requests


def read_build(folder: Path) -> Build:
    """The roles of all devices of a build.

    Raises:
        BundleError: one is missing, damaged, or of another plan.
    """
    roles = read_roles(folder)
    ring = next(iter(roles.values())).ring
    return Build(folder, {device: roles[device] for device in ring})


def workflow(case: Case, build: Build | None) -> Workflow:
    """The programs of the build, or where there is none, those that follow from the plan.

    Raises:
        BundleError: the build's are not those of the plan.
    """
    if build and not case.phases:
        return build_workflow(build, case)
    if build:
        _check_group(build, case)
    return planned_workflow(case)


def _check_group(build: Build, case: Case) -> None:
    """A build whose stages have several devices is followed as its plan is: the programs are those of the lanes.

    Raises:
        BundleError: its devices are not those of the plan.
    """
    if {*devices_in(case.phases)} != {*build.roles}:
        raise _foreign(build, "has other devices")
    placement = next(iter(build.roles.values())).placement
    for phase, stages in case.phases.items():
        built = placement.stages.get(phase, ())
        if [(stage.submodules, stage.devices, stage.share) for stage in stages] != [
            (stage.submodules, stage.devices, stage.share) for stage in built
        ]:
            raise _foreign(build, f"shares other blocks in {phase}")
        seconds = placement.predicted.get(f"{phase}_s")
        if seconds is not None and not math.isclose(seconds, case.predicted_s[phase], rel_tol=1e-6):
            raise _foreign(build, f"predicts another time of a {phase} step")


def build_workflow(build: Build, case: Case) -> Workflow:
    """The programs of a build at the costs of its plan.

    A `run` takes as long as the sub-modules that it covers. Values have the sizes of the problem's edges; what no edge
    carries is a result, and the results share those of the problem by their largest sizes.

    Raises:
        BundleError: the programs are not those of the plan.
    """
    scripts = tuple(_script(build, case, phase) for phase in case.problem.steps)
    return Workflow(case.problem.source, case.problem.link_of, scripts, case.problem.batch)


def _script(build: Build, case: Case, phase: Phase) -> Script:
    """Programs are for prefill and decode; a problem without these phases is one of prefill alone."""
    name = phase.name if phase.name == "decode" else "prefill"
    planned = held(case.stages)
    if list(planned) != list(build.roles):
        raise _foreign(build, "has other devices, or in another order")
    for device, role in build.roles.items():
        if name not in role.programs:
            raise _foreign(build, f"has a phase {phase.name}, for which {device} has no program")
        covered = dict.fromkeys(j for item in _covered(role, name) for j in item)
        # Steps behind the first have no call for what depends on a source alone.
        if list(covered) != [j for j in planned[device] if name == "prefill" or j in covered]:
            raise _foreign(build, f"gives {device} other sub-modules")
        for message in (message for item in role.programs[name] for message in item.sends):
            if (device, message.device) not in case.problem.link_of:
                raise _foreign(build, f"has no link from {device} to {message.device}")
    programs = {device: role.programs[name] for device, role in build.roles.items()}
    runs = {device: _runs(role, name, phase, case.stages) for device, role in build.roles.items()}
    sizes = {edge.value: edge.bytes for edge in phase.edges if edge.value is not None}
    sizes |= {result.value: result.bytes for result in phase.results}
    return Script(phase.name, programs, runs, {**_results(build, name, sizes, phase.return_bytes), **sizes})


def _runs(role: Role, name: str, phase: Phase, stages: Stages) -> tuple[tuple[int, float], ...]:
    """(stage, seconds) of each `run` of a device's program; where a piece has two, the first takes the time of both."""
    place, counted, found = places_of(stages), set[int](), []
    for covered in _covered(role, name):
        seconds = sum(phase.time_s[j][role.device] for j in covered if j not in counted)
        found.append((place[covered[0]], seconds))
        counted.update(covered)
    return tuple(found)


def _covered(role: Role, name: str) -> list[range]:
    """The sub-modules of the plan that each `run` of a device's program computes."""
    names = [item.submodule for item in role.programs[name] if isinstance(item, Run)]
    found = [role.submodules[each].covers for each in names]
    if None in found:
        message = f"{names[found.index(None)]} does not tell which sub-modules of the plan it computes"
        raise BundleError(message, where=role.device, hint=RECOMPILE)
    return [range(covers[0], covers[1] + 1) for covers in found if covers is not None]


def _results(build: Build, name: str, sizes: Mapping[str, float], return_bytes: float) -> dict[str, float]:
    """Sizes of the values that programs send and that neither edges nor results name: together the return_bytes."""
    largest: dict[str, int] = {}
    for role in build.roles.values():
        sent = (value for item in role.programs[name] for message in item.sends for value in message.values)
        for value in sent:
            if value not in sizes:
                largest[value] = role.types[value].bytes(role.dims)
    total = sum(largest.values())
    return {value: return_bytes * size / total if total else 0.0 for value, size in largest.items()}


def _foreign(build: Build, what: str) -> BundleError:
    return BundleError(
        f"plan.json and the programs do not belong together: the plan {what}",
        where=str(build.folder),
        hint=RECOMPILE,
    )
