"""A build as a re-plan sees it: its pieces, the devices that hold them, and placements of them. Nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from partc.balance.pieces import Piece, Pieces, to_pieces
from partc.errors import PlanError
from partc.format.build import Build, Submodule, load_build
from partc.format.names import device_folders
from partc.format.placement import Placement, Stages, seal_placement
from partc.format.program import ONCE, Emit, Program, Run, Sample, piece_of, print_program
from partc.format.reading import RECOMPILE, convert
from partc.format.role import STEP_INPUTS, source_role
from partc.planner.model.evaluate import evaluate
from partc.planner.model.layers import Shape, Span
from partc.planner.model.patience_figures import placement_figures
from partc.planner.model.plan_file import PLAN_FILE, has_groups, read_plan
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import read_problem
from partc.planner.programs.request import PieceCalls, chain_programs
from partc.planner.programs.work import Values

_COPIES = "`overlap: 1` or `survive: one` in devices.yaml lay more there"
_ROOM = "move fewer sub-modules, or others besides"


@dataclass(frozen=True)
class Artifacts:
    """The files of a build that a placement is made of."""

    problem: Problem
    """The problem of plan.json."""
    shape: Shape
    """The sub-modules of the plan, and the layers in each."""
    builds: Mapping[str, Build]
    """Device → its build.json."""
    compiled: Placement
    """The placement that `partc compile` made."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the pieces in the order of a step."""
        return tuple(sorted(self._spans, key=lambda name: self._spans[name]))

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces, and who holds each."""
        return tuple(Piece(*self._spans[name], self._holders(name)) for name in self.names)

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """Piece → its sub-modules of the plan."""
        held = (item for build in self.builds.values() for item in build.submodules)
        return {piece_of(item.name): item.covers for item in held if item.covers is not None}

    def _holders(self, piece: str) -> frozenset[str]:
        """The devices on whose disks all files of a piece lie."""
        files = {device: {*_held(build)} & {piece, piece + ONCE} for device, build in self.builds.items()}
        every = set[str]().union(*files.values())
        return frozenset(device for device, found in files.items() if found == every)

    @property
    def stages(self) -> Stages:
        """The stages as compiled; all phases have the same."""
        return next(iter(self.compiled.stages.values()))

    def place(self, stages: Stages) -> Placement:
        """A placement with these stages, sealed, of epoch 0.

        Raises:
            PlanError: a stage ends inside a piece, a piece is not on its device's disk, or the plan does not allow it
                (memory, a missing link, raw input that would leave the source).
        """
        here = to_pieces(stages, self.pieces)
        self._check_held(here)
        evaluation = evaluate(self.problem, stages)
        if evaluation.violations:
            raise PlanError(f"the placement cannot be: {evaluation.violations[0]}", hint=_ROOM)
        phases = self.compiled.stages
        programs = chain_programs(here, self._calls, self._values, phases)
        runs = {self.names[piece]: stage.device for stage in here for piece in stage.indices}
        return seal_placement(replace(
            self.compiled,
            epoch=0,
            ring=tuple(programs["prefill"]),
            stages=dict.fromkeys(phases, stages),
            programs={
                phase: {name: print_program(program) for name, program in programs[phase].items()}
                for phase in phases
            },
            predicted=placement_figures(evaluation.predicted, self.compiled.predicted.get("prefill_tokens")),
            mirrors=self._kept_mirrors(runs, evaluation.free_bytes(self.problem)),
        ))  # fmt: skip

    def _kept_mirrors(self, runs: Mapping[str, str], free_bytes: Mapping[str, float]) -> dict[str, str]:
        """Piece → the device that keeps a copy of its rows as compiled, where that has room for it still.

        Args:
            runs: piece → the device that runs it now.
            free_bytes: device → memory that is left.
        """
        left, kept = dict(free_bytes), {}
        for name, holder in self.compiled.mirrors.items():
            count = self._rows_bytes(name)
            if holder != runs[name] and count <= left[holder]:
                left[holder] -= count
                kept[name] = holder
        return kept

    def _rows_bytes(self, name: str) -> int:
        """Bytes of the states of a piece, of all requests in flight."""
        build = next(build for build in self.builds.values() if name in _held(build))
        each = sum(state.type.bytes(build.dims) for state in _held(build)[name].states)
        return each * build.model.max_requests

    def _check_held(self, here: Stages) -> None:
        for stage in here:
            for place in stage.indices:
                piece = self.pieces[place]
                if stage.device not in piece.holders:
                    what = f"{self.shape.describe(piece.indices)} ({self.names[place]})"
                    holders = ", ".join(sorted(piece.holders))
                    raise PlanError(
                        f"{stage.device} has no copy of {what}; it lies on {holders}",
                        hint=f"on its disk lie {self._held_by(stage.device)}; {_COPIES}",
                    )

    def _held_by(self, device: str) -> str:
        """The pieces on a device's disk: `sub-modules 0-8, 9-12`."""
        spans = [piece.span for piece in self.pieces if device in piece.holders]
        return f"sub-modules {', '.join(spans)}" if spans else "none"

    @cached_property
    def _calls(self) -> list[PieceCalls]:
        """The calls of every piece."""
        found = {item.name: item for build in self.builds.values() for item in build.submodules}
        calls = {name: Run(name, item.inputs, item.outputs) for name, item in found.items()}
        return [PieceCalls(calls.get(name + ONCE), calls.get(name)) for name in self.names]

    @cached_property
    def _values(self) -> Values:
        """The inputs and results of a request."""
        build = self.builds[self.compiled.source]
        return Values(
            given={port.name: "sequence" in port.shape for port in build.inputs},
            on_devices=frozenset(STEP_INPUTS),
            results=self._emitted.values,
            sample=self._sample,
            order=[name for piece in self._calls for call in piece.first for name in call.outputs],
        )

    @cached_property
    def _emitted(self) -> Emit:
        """The values that the source hands to the client."""
        return next(
            item for program in self._compiled_programs() for item in program if isinstance(item, Emit)
        )

    @cached_property
    def _sample(self) -> Sample | None:
        """The choice of the next token; None for a model that does not generate."""
        found = (
            item for program in self._compiled_programs() for item in program if isinstance(item, Sample)
        )
        return next(found, None)

    def _compiled_programs(self) -> Iterator[Program]:
        yield from next(iter(self.compiled.parsed.values())).values()


def read_artifacts(build_dir: Path) -> Artifacts:
    """The artifacts of a build's folder.

    Raises:
        UserError: it is no build, a file in it is missing or damaged, or it was made without a plan.
    """
    file = build_dir / PLAN_FILE
    plan = read_plan(file)
    if has_groups(plan):
        message = "its devices share blocks: a group of devices is one stage, and no part of it can be moved"
        raise PlanError(message, where=str(file), hint="compile with another --strategy to move sub-modules")
    problem = read_problem(plan["problem"], f"{file}: problem")
    builds = {build.device: build for build in map(load_build, device_folders(build_dir))}
    found = Artifacts(
        problem,
        Shape(len(problem.submodules), _layers(plan, problem, file)),
        builds,
        source_role(build_dir).placement,
    )
    if sum(len(piece.indices) for piece in found.pieces) != len(problem.submodules):
        message = "its pieces are not those of its plan"
        raise PlanError(message, where=str(build_dir), hint=RECOMPILE)
    return found


def _layers(plan: Mapping[str, Any], problem: Problem, file: Path) -> tuple[Span, ...] | None:
    """The layers of every sub-module of a plan.json; None where they cannot be told."""
    if plan.get("layers") is None:
        return None
    where = f"{file}: layers"
    layers = convert(plan["layers"], tuple[Span, ...], where)
    if len(layers) != len(problem.submodules):
        message = f"expected a pair for each of {len(problem.submodules)} sub-modules, found {len(layers)}"
        raise PlanError(message, where=where, hint=RECOMPILE)
    return layers


def _held(build: Build) -> dict[str, Submodule]:
    """Name → piece, of all that lie on the disk of a device."""
    return {item.name: item for item in build.submodules}
