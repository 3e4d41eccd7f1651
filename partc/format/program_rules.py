"""The rules of programs: one checker for the compiler, which made them, and the runner, which is given them.

| rule | checked by |
| --- | --- |
| a message is awaited with just the values that it is sent with, once | `ring_problems` |
| a message goes to another device of the ring | `ring_problems` |
| a value comes to a device once | `ring_problems` |
| no device waits for a message that is sent only after its own next steps | `ring_problems` |
| only the source emits | `ring_problems` |
| a value is given, made or received before it is read | `device_problems` |
| a sub-module with states is called with its own inputs and outputs, another one with values of the same types but
  for the sizes of symbols | `device_problems` |
| only values of float32 and of one shape are added | `device_problems` |
| parts are those of their whole: of its type, but for their sizes along one axis | `device_problems` |

Sizes are compared as they are at the largest value of every symbol: expressions of one size may differ in their text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from partc.format.build import TensorType
from partc.format.dims import cut_sizes
from partc.format.program import Add, Cut, Emit, Instruction, Join, Program, Run, print_instruction


class Problem(NamedTuple):
    """A broken rule."""

    device: str
    message: str


class Call(NamedTuple):
    """A sub-module as programs call it."""

    inputs: tuple[str, ...]
    """Its own, and so the outputs."""
    outputs: tuple[str, ...]
    has_states: bool


class Types(NamedTuple):
    """Types of values."""

    of: Mapping[str, TensorType]
    """By name."""
    dims: Mapping[str, int]
    """The largest value of every symbol."""

    def fixed(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Element type and largest sizes of a value."""
        return self.of[name].dtype, self.of[name].sizes(self.dims)


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
    calls: Mapping[str, Call],
    types: Types | None = None,
) -> Iterator[str]:
    """The broken rules of one device's program.

    Args:
        program: of the device.
        given: values that are there when a step begins.
        calls: sub-module → how it is called.
        types: of values; None: they are not known yet.
    """
    known = set(given)
    for instruction in program:
        for problem in _problems(instruction, known, calls, types):
            yield f"`{print_instruction(instruction)}`: {problem}"
        known.update(instruction.writes)


def _problems(
    instruction: Instruction, known: Collection[str], calls: Mapping[str, Call], types: Types | None
) -> Iterator[str]:
    if problem := _read_problem(instruction, known):
        yield problem
    try:
        found = [_type_problem(instruction, types), _call_problem(instruction, calls, types)]
    except ValueError:
        found = ["a size of its values is no size"]
    yield from filter(None, found)


def _read_problem(instruction: Instruction, known: Collection[str]) -> str | None:
    missing = [name for name in instruction.reads if name not in known]
    return f"{missing[0]!r} is neither given, made nor received before" if missing else None


def _type_problem(instruction: Instruction, types: Types | None) -> str | None:
    if types is None:
        return None
    names = (*instruction.reads, *instruction.writes)
    if unknown := [name for name in names if name not in types.of]:
        return f"the type of {unknown[0]!r} is not among values"
    if isinstance(instruction, Add):
        first, *others = map(types.fixed, names)
        if first[0] != "float32" or any(other != first for other in others):
            return "only values of float32 and of one shape are added"
    if isinstance(instruction, Cut | Join) and not _are_parts(instruction, types):
        return "the parts are not those of the whole"
    return None


def _are_parts(instruction: Cut | Join, types: Types) -> bool:
    """Whether parts make up a whole, and are as equal as they are cut."""
    (dtype, whole), axis = types.fixed(instruction.whole), instruction.axis
    found = [types.fixed(name) for name in instruction.parts]
    if axis >= len(whole):
        return False
    expected = [
        (dtype, (*whole[:axis], part, *whole[axis + 1 :])) for part in cut_sizes(whole[axis], len(found))
    ]
    return found == expected


def _call_problem(instruction: Instruction, calls: Mapping[str, Call], types: Types | None) -> str | None:
    if not isinstance(instruction, Run):
        return None
    call = calls.get(instruction.submodule)
    if call is None:
        return f"{instruction.submodule!r} is not a sub-module of this device"
    own, given = (*call.inputs, *call.outputs), (*instruction.inputs, *instruction.outputs)
    if own == given and len(call.inputs) == len(instruction.inputs):
        return None
    if call.has_states or (len(call.inputs), len(own)) != (len(instruction.inputs), len(given)):
        return "the sub-module has other inputs or outputs"
    if types is None or not {*own} <= {*types.of} or _fits(call, instruction, types):
        return None
    return "the sub-module takes or makes values of other types"


def _fits(call: Call, run: Run, types: Types) -> bool:
    """Whether the values of a call have the types of the sub-module's own, for some sizes of its symbols."""
    shapes = [types.fixed(name)[1] for name in run.inputs]
    own = [types.of[name] for name in call.inputs]
    if any(len(kind.shape) != len(shape) for kind, shape in zip(own, shapes, strict=True)):
        return False
    dims = dims_of_call(own, shapes, types.dims)
    pairs = zip((*call.inputs, *call.outputs), (*run.inputs, *run.outputs), strict=True)
    return all((types.of[a].dtype, types.of[a].sizes(dims)) == types.fixed(b) for a, b in pairs)


def dims_of_call(
    own: Iterable[TensorType], shapes: Iterable[Sequence[int]], dims: Mapping[str, int]
) -> dict[str, int]:
    """The sizes of symbols in a call.

    Args:
        own: types of the sub-module's own inputs.
        shapes: those of the values that it is given.
        dims: the sizes of the step.
    """
    sizes = dict(dims)
    for kind, shape in zip(own, shapes, strict=True):
        sizes.update((dim, size) for dim, size in zip(kind.shape, shape, strict=True) if dim in dims)  # type: ignore[misc]
    return sizes


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
