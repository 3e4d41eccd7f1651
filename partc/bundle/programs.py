"""What the manifest must know of the programs: their values and the peers that they talk to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from partc.format.program import Emit, Instruction, Program, Recv, Sample, Send, reads, writes


@dataclass(frozen=True)
class Traffic:
    """What the programs of one device exchange, each name once, in order."""

    receive: tuple[str, ...]
    """Devices that it receives from."""
    send: tuple[str, ...]
    """Devices that it sends to."""
    values: tuple[str, ...]
    """Everything that an instruction reads or writes."""
    tokens: tuple[str, ...]
    """What is sampled."""
    emitted: tuple[str, ...]
    """What the client gets."""


def traffic_of(programs: Mapping[str, Program]) -> Traffic:
    """The exchanges of all phases of a device's program together."""
    steps = [step for phase in sorted(programs, reverse=True) for step in programs[phase]]
    return Traffic(
        receive=_once(step.device for step in steps if isinstance(step, Recv)),
        send=_once(step.device for step in steps if isinstance(step, Send)),
        values=_once(name for step in steps for name in _names(step)),
        tokens=_once(step.token for step in steps if isinstance(step, Sample)),
        emitted=_once(name for step in steps if isinstance(step, Emit) for name in step.values),
    )


def _names(step: Instruction) -> tuple[str, ...]:
    return (*reads(step), *writes(step))


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
