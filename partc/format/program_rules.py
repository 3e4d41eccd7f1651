"""The rules of programs: one checker for the compiler, which made them, and the runner, which is given them.

| rule | checked by |
| --- | --- |
| a message is awaited with just the values that it is sent with, once | `ring_problems` |
| a message goes to another device of the ring | `ring_problems` |
| a value comes to a device once | `ring_problems` |
| no device waits for a message that is sent only after its own next steps | `ring_problems` |
| only the source emits | `ring_problems` |
| a value is given, made or received before it is read | `device_problems` |
| a sub-module is called with its own inputs and outputs | `device_problems` |
| only values of float32 and of one shape are added | `device_problems` |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from partc.format.build import TensorType
from partc.format.program import Add, Emit, Instruction, Program, Run, print_instruction


class Problem(NamedTuple):
    """A broken rule."""

    device: str
    message: str


class _Travel(NamedTuple):
    """A message from device to device."""

    sender: str
    receiver: str
    values: tuple[str, ...]

    @property
    def names(self) -> str:
        return ", ".join(self.values)


def ring_problems(programs: Mapping[str, Program], source: str) -> Iterator[Problem]:
    """The broken rules of one phase's programs together, in the order of the table; O(instructions²) at worst.

    Args:
        programs: device → program, of all devices of the ring.
        source: the device that has the client.
    """
    yield from _address_problems(programs, source)
    yield from _message_problems(programs)
    yield from _progress_problems(programs)


def device_problems(
    program: Program,
    given: Collection[str],
    calls: Mapping[str, Run],
    types: Mapping[str, TensorType] | None = None,
) -> Iterator[str]:
    """The broken rules of one device's program.

    Args:
        program: of the device.
        given: values that are there when a step begins.
        calls: sub-module → its call, with its own inputs and outputs.
        types: of values; None: they are not known yet.
    """
    known = set(given)
    for instruction in program:
        for problem in (
            _read_problem(instruction, known),
            _type_problem(instruction, types),
            _call_problem(instruction, calls),
        ):
            if problem:
                yield f"`{print_instruction(instruction)}`: {problem}"
        known.update(instruction.writes)


def _read_problem(instruction: Instruction, known: Collection[str]) -> str | None:
    missing = [name for name in instruction.reads if name not in known]
    return f"{missing[0]!r} is neither given, made nor received before" if missing else None


def _type_problem(instruction: Instruction, types: Mapping[str, TensorType] | None) -> str | None:
    if types is None:
        return None
    names = (*instruction.reads, *instruction.writes)
    if unknown := [name for name in names if name not in types]:
        return f"the type of {unknown[0]!r} is not among values"
    if isinstance(instruction, Add):
        first, *others = (types[name] for name in names)
        if first.dtype != "float32" or any(other != first for other in others):
            return "only values of float32 and of one shape are added"
    return None


def _call_problem(instruction: Instruction, calls: Mapping[str, Run]) -> str | None:
    if not isinstance(instruction, Run):
        return None
    call = calls.get(instruction.submodule)
    if call is None:
        return f"{instruction.submodule!r} is not a sub-module of this device"
    return None if instruction == call else "the sub-module has other inputs or outputs"


def _address_problems(programs: Mapping[str, Program], source: str) -> Iterator[Problem]:
    for device, program in programs.items():
        for instruction in program:
            text = print_instruction(instruction)
            for message in (*instruction.awaits, *instruction.sends):
                if message.device == device or message.device not in programs:
                    problem = f"`{text}`: {message.device!r} is not another device of the ring"
                    yield Problem(device, problem)
            if isinstance(instruction, Emit) and device != source:
                yield Problem(device, f"`{text}`: only the source emits")


def _message_problems(programs: Mapping[str, Program]) -> Iterator[Problem]:
    """Every message is awaited as it is sent, and brings a device no value twice."""
    items = [(device, item) for device, program in programs.items() for item in program]
    sent = Counter(_Travel(device, *message) for device, item in items for message in item.sends)
    awaited = Counter(
        _Travel(message.device, device, message.values) for device, item in items for message in item.awaits
    )
    for travel, count in awaited.items():
        if (count, sent[travel]) != (1, 1):
            message = f"waits for {travel.names} from {travel.sender}, which does not send just that, once"
            yield Problem(travel.receiver, message)
    for travel in sent - awaited:
        message = f"sends {travel.names} to {travel.receiver}, which does not wait for just that, once"
        yield Problem(travel.sender, message)
    arrivals = Counter((travel.receiver, value) for travel in awaited for value in travel.values)
    for (receiver, value), count in arrivals.items():
        if count > 1:
            yield Problem(receiver, f"is sent {value!r} {count} times")


def _progress_problems(programs: Mapping[str, Program]) -> Iterator[Problem]:
    """No device waits for a message that is sent only after something that it has yet to do."""
    at = dict.fromkeys(programs, 0)
    sent: set[_Travel] = set()
    has_moved = True
    while has_moved:
        has_moved = False
        for name, program in programs.items():
            has_moved |= _advance(name, program, at, sent)
    for name, program in programs.items():
        if at[name] < len(program):
            yield Problem(name, f"waits for ever: `{print_instruction(program[at[name]])}`")


def _advance(device: str, program: Program, at: dict[str, int], sent: set[_Travel]) -> bool:
    """Carry out instructions up to one that waits for a message that was not sent; whether there were any."""
    start = at[device]
    for instruction in program[start:]:
        awaited = {_Travel(message.device, device, message.values) for message in instruction.awaits}
        if not awaited <= sent:
            break
        sent.update(_Travel(device, *message) for message in instruction.sends)
        at[device] += 1
    return at[device] > start
