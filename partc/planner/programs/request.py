"""The programs of a request: of its first step and of the others, for every device.

A piece is what no placement of a build cuts (`partc.planner.model.pieces`). It has a call for every step, and where a
part of it depends on a source alone (a text, a picture, a sound that is read before), another for the first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from partc.errors import PlanError
from partc.format.placement import Stage, Stages
from partc.format.program import Keep, Program, Run
from partc.planner.programs.step import step_programs
from partc.planner.programs.work import Call, Compute, UnitWork, Values

Programs = Mapping[str, Mapping[str, Program]]
"""Phase → device → its program, the source's first."""


@dataclass(frozen=True)
class PieceCalls:
    """The calls of one piece, as far as it has them."""

    once: Run | None
    """In the first step of a request alone, before `steps`."""
    steps: Run | None
    """In all steps."""

    @property
    def first(self) -> tuple[Run, ...]:
        """The calls of a first step."""
        return tuple(call for call in (self.once, self.steps) if call is not None)

    @property
    def later(self) -> tuple[Run, ...]:
        """The calls of all other steps."""
        return () if self.steps is None else (self.steps,)


def chain_programs(
    stages: Stages, pieces: Sequence[PieceCalls], values: Values, phases: Iterable[str]
) -> Programs:
    """The programs of stages of one device each; O(stages · values).

    Args:
        stages: of pieces.
        pieces: the calls of all pieces, in the order of a step.
        values: what is given and got.
        phases: `prefill` alone, or with `decode`.
    """
    work = {
        "prefill": [_unit(stage, [piece.first for piece in pieces]) for stage in stages],
        "decode": [_unit(stage, [piece.later for piece in pieces]) for stage in stages],
    }
    return request_programs({phase: work[phase] for phase in phases}, values)


def _unit(stage: Stage, pieces: Sequence[Sequence[Run]]) -> UnitWork:
    calls = [Call(run, is_kept=True) for piece in stage.indices for run in pieces[piece]]
    return UnitWork(stage.devices, tuple(Compute("alone", (call,)) for call in calls))


def request_programs(work: Mapping[str, Sequence[UnitWork]], values: Values) -> Programs:
    """The programs of a request; the first step keeps what later ones read and do not make.

    Args:
        work: phase → its units; `prefill`, and where later steps follow, `decode`.
        values: what is given and got.

    Raises:
        PlanError: a device needs in later steps what it does not have in the first.
    """
    first = step_programs(work["prefill"], values)
    if "decode" not in work:
        return {"prefill": first}
    later = step_programs(work["decode"], values.later)
    known = {*values.on_devices, *values.later.given}
    kept = {
        name: _with_kept(name, first.get(name, ()), later.get(name, ()), known) for name in {**first, **later}
    }
    return {"prefill": kept, "decode": later}


def _with_kept(device: str, first: Program, later: Program, known: set[str]) -> Program:
    """The program of the first step, keeping what later steps read and do not make themselves."""
    made = known.union(name for item in later for name in item.writes)
    kept = tuple(dict.fromkeys(name for item in later for name in item.reads if name not in made))
    there = {name for item in first for name in (*item.reads, *item.writes)}
    if missing := [name for name in kept if name not in there]:
        raise PlanError(
            f"{device} needs {missing[0]} in later steps, and does not have it in the first",
            hint="--strategy megatron shares all blocks alike in all steps",
        )
    return (*first, Keep(kept)) if kept else first
