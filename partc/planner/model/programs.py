"""The programs of a placement: what the compiler writes, and what a move of sub-modules writes again.

A piece is what no placement of a build cuts (`stages.py`). It has a call for every step, and where a part of it
depends on a source alone (a text, a picture, a sound that is read before), another for the first step of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from partc.format.placement import Stages
from partc.format.program import Keep, Program, Run, Sample
from partc.planner.model.stages import SOURCE, Ends, Step, places_of, programs_of, route


@dataclass(frozen=True)
class Calls:
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


@dataclass(frozen=True)
class Whole:
    """The inputs and results of a request of the whole model."""

    given: Mapping[str, bool]
    """Input of a request → whether a step brings a new value of it; others come in the first step alone."""
    on_devices: frozenset[str]
    """Inputs that every device has by itself in every step: positions."""
    results: tuple[str, ...]
    """Values that the source hands to the client."""
    sample: Sample | None
    """The choice of the next token, which then is the result; None: the model does not generate."""
    order: Sequence[str] = ()
    """Values in the order in which messages hold them; those that it leaves out follow in the order of the calls."""

    @property
    def later(self) -> Whole:
        """The same of a step behind the first."""
        return replace(self, given={name: is_new for name, is_new in self.given.items() if is_new})


def placement_programs(
    stages: Stages, pieces: Sequence[Calls], whole: Whole, phases: Iterable[str]
) -> dict[str, dict[str, Program]]:
    """Device → phase → its program, the source's first; O(calls + values · readers).

    Args:
        stages: of pieces, each of one device.
        pieces: the calls of all pieces, in the order of a step.
        whole: what is given and got.
        phases: `prefill` alone, or with `decode`.
    """
    first = _programs(stages, [piece.first for piece in pieces], whole)
    if "decode" not in phases:
        return {device: {"prefill": program} for device, program in first.items()}
    later = _programs(stages, [piece.later for piece in pieces], whole.later)
    known = {*whole.on_devices, *whole.later.given}
    return {
        device: {"prefill": _with_kept(program, later[device], known), "decode": later[device]}
        for device, program in first.items()
    }


def _with_kept(first: Program, later: Program, known: set[str]) -> Program:
    """The program of the first step, keeping what later steps read and do not make themselves."""
    made = known.union(name for item in later for name in item.writes)
    kept = tuple(dict.fromkeys(name for item in later for name in item.reads if name not in made))
    return (*first, Keep(kept)) if kept else first


def _programs(stages: Stages, pieces: Sequence[Sequence[Run]], whole: Whole) -> dict[str, Program]:
    """Device → its program of one phase."""
    messages, samples = _messages(stages, pieces, whole)
    runs = [[call for piece in stage.indices for call in pieces[piece]] for stage in stages]
    return programs_of(stages, Step(runs, messages, whole.results, samples))


def _messages(
    stages: Stages, pieces: Sequence[Sequence[Run]], whole: Whole
) -> tuple[dict[Ends, list[str]], dict[int, Sample]]:
    """The messages of a step, those of the way back among them, and who samples."""
    makers = dict.fromkeys(whole.given, SOURCE)
    makers |= {name: place for place, calls in enumerate(pieces) for call in calls for name in call.outputs}
    readers: dict[str, list[int]] = {}
    for place, calls in enumerate(pieces):
        for name in dict.fromkeys(name for call in calls for name in call.inputs):
            readers.setdefault(name, []).append(place)
    uses = [
        (name, makers[name], reader)
        for name in dict.fromkeys((*whole.order, *makers))
        if name in makers
        for reader in readers.get(name, ())
        if reader != makers[name]
    ]
    messages, homes = route(stages, uses), places_of(stages)
    if whole.sample is not None:
        maker = homes[makers[whole.sample.logits]]
        _return(stages, messages, maker, whole.sample.token)
        return messages, {maker: whole.sample}
    for name in whole.results:
        _return(stages, messages, homes[makers[name]], name)
    return messages, {}


def _return(stages: Stages, messages: dict[Ends, list[str]], sender: int, value: str) -> None:
    """A value of the result goes to the source, where it is not there already."""
    source = stages[SOURCE].device
    sent = (
        values
        for (begin, end), values in messages.items()
        if begin == sender and stages[end].device == source
    )
    if stages[sender].device != source and not any(value in values for values in sent):
        messages.setdefault((sender, SOURCE), []).append(value)
