"""Stages into programs: who sends which value to whom in a step, and what every device does in order.

A stage is consecutive sub-modules on their devices (`partc.format.placement.Stage`). A *piece* is the sub-modules
between two neighbouring borders of all placements that a build knows: what no placement cuts, one graph and one call.
A stage is one piece or several. `programs_of` makes the programs of stages of one device each, `shared/programs.py`
those of groups: `split-graph` calls it with the values of a graph, the simulator with those of a planning problem.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from partc.format.placement import Stage, Stages
from partc.format.plan import PlanFile, losses_of
from partc.format.program import Emit, Instruction, Program, Recv, Run, Sample, Send

SOURCE = 0
"""Index of the first stage, which is on the source; as a receiver it stands for the way back."""

Ends = tuple[int, int]
"""Indices of the sending stage and of the receiving stage."""

_Key = TypeVar("_Key", bound=Hashable)


def places_of(stages: Stages) -> list[int]:
    """The index of the stage of every sub-module."""
    return [place for place, stage in enumerate(stages) for _ in stage.indices]


def devices_of(stages: Stages) -> list[str]:
    """The device of every sub-module."""
    return [stage.device for stage in stages for _ in stage.indices]


def borders_of(placements: Iterable[Stages]) -> frozenset[int]:
    """The sub-modules before which any of these placements cuts."""
    return frozenset(stage.first for stages in placements for stage in stages if stage.first)


def cut_into_pieces(stages: Stages, borders: Collection[int]) -> Stages:
    """The stages cut before the sub-modules in `borders`: each piece as a stage of its own."""
    return tuple(piece for stage in stages for piece in _cut(stage, borders))


def _cut(stage: Stage, borders: Collection[int]) -> Iterator[Stage]:
    firsts = [stage.first, *(j for j in stage.indices[1:] if j in borders)]
    for first, following in zip(firsts, [*firsts[1:], stage.last + 1], strict=True):
        yield Stage((first, following - 1), stage.devices, stage.share)


def pieces_of(plan: PlanFile) -> Stages:
    """The pieces of a build, in the order of a step.

    They end where the plan cuts, where one for the loss of a device does, and where work can be moved.
    """
    others = [loss.stages for loss in losses_of(plan) if loss.stages]
    further = plan.overlap.borders if plan.overlap else ()
    return cut_into_pieces(plan.stages, {*borders_of([plan.stages, *others]), *further})


def pieces_in(stage: Stage, pieces: Stages) -> list[int]:
    """The numbers of the pieces that a stage consists of."""
    return [number for number, piece in enumerate(pieces) if piece.first in stage.indices]


def held(stages: Stages) -> dict[str, list[int]]:
    """Device → its sub-modules, in the order of its first stage."""
    found: dict[str, list[int]] = {}
    for stage in stages:
        found.setdefault(stage.device, []).extend(stage.indices)
    return found


def devices_in(phases: Mapping[str, Stages]) -> list[str]:
    """The devices that any phase uses, in the order of their first stages."""
    return list(dict.fromkeys(name for some in phases.values() for stage in some for name in stage.devices))


def returns_of(stages: Stages) -> int:
    """How often a plan returns to a device that it has left."""
    return len(stages) - len({stage.device for stage in stages})


def route(stages: Stages, uses: Iterable[tuple[_Key, int, int]]) -> dict[Ends, list[_Key]]:
    """The values of each message: (sending stage, receiving stage) → values, in the order of `uses`.

    A value goes once to each device that reads it: to its first stage that does. Later stages of that device keep
    it, and stages of the device that made it have it: neither needs a message. O(uses).

    Args:
        stages: of one device each.
        uses: (value, sub-module that makes it, sub-module that reads it).
    """
    place, device = places_of(stages), [stage.device for stage in stages]
    first: dict[tuple[_Key, str], Ends] = {}
    for value, maker, reader in uses:
        sender, receiver = place[maker], place[reader]
        if device[sender] != device[receiver]:
            ends = first.setdefault((value, device[receiver]), (sender, receiver))
            if receiver < ends[1]:
                first[value, device[receiver]] = sender, receiver
    messages: dict[Ends, list[_Key]] = {}
    for (value, _), ends in first.items():
        messages.setdefault(ends, []).append(value)
    return messages


@dataclass(frozen=True)
class Step:
    """One step of a phase, stage by stage, with values by name."""

    runs: Sequence[Sequence[Run]]
    """The calls of each stage, one a piece."""
    messages: Mapping[Ends, Sequence[str]]
    """(sending stage, receiving stage) → values of the one message between them; to `SOURCE`: the way back."""
    emitted: tuple[str, ...]
    """The values that the source hands to the client."""
    samples: Mapping[int, Sample] = field(default_factory=dict)
    """Stage → the token that is drawn from its logits."""


def part_name(number: int) -> str:
    """The name of a piece, of its graph and of its file."""
    return f"part_{number}"


def programs_of(stages: Stages, step: Step) -> dict[str, Program]:
    """Device → its program, the source's first: its stages in order, each with its messages.

    Programs cannot wait for each other in a circle: all follow the order of the stages, and no message goes to an
    earlier stage but those to the end of the source's program.
    """
    programs: dict[str, list[Instruction]] = {stage.device: [] for stage in stages}
    for place, stage in enumerate(stages):
        programs[stage.device] += _stage_program(stages, place, step)
    programs[stages[SOURCE].device] += [*_receives(stages, SOURCE, step), Emit(step.emitted)]
    return {device: tuple(program) for device, program in programs.items()}


def _stage_program(stages: Stages, place: int, step: Step) -> list[Instruction]:
    """Receive, run, send to later stages, sample, send back to the source."""
    program = [] if place == SOURCE else _receives(stages, place, step)
    program += step.runs[place]
    receivers = sorted(receiver for sender, receiver in step.messages if sender == place)
    sends = [Send(tuple(step.messages[place, to]), stages[to].device) for to in receivers]
    back, onward = (sends[:1], sends[1:]) if SOURCE in receivers else ([], sends)
    sampled = [step.samples[place]] if place in step.samples else []
    return [*program, *onward, *sampled, *back]


def _receives(stages: Stages, place: int, step: Step) -> list[Instruction]:
    senders = sorted(sender for sender, receiver in step.messages if receiver == place)
    return [Recv(tuple(step.messages[sender, place]), stages[sender].device) for sender in senders]
