"""Programs: the work of a device in one step of one request, as a list of instructions.

```
program     := { line }
line        := [ instruction ] [ "#" comment ]
instruction := a word and operands: the `grammar` of one of the classes below
names       := name { "," name }
tuple       := "(" [ names ] ")"
name        := letters, digits and . _ : / @ $ % + - [ ]   or any text as a JSON string
device      := [a-z][a-z0-9_]*
```

An instruction is one class here and one member of `Instruction`: its grammar, and the values that it reads, makes,
awaits and sends. The printer, the parser (`partc.format.program_text`), the checker (`partc.format.program_rules`) and
the table of docs/bundle.md follow from that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, assert_never, get_args

from partc.format.program_text import Line, print_fields, read_fields
from partc.format.tasks import SOURCE


class Message(NamedTuple):
    """Values that travel together between two devices."""

    device: str
    """The other device."""
    values: tuple[str, ...]


class _Entry:
    """Defaults of an instruction's properties."""

    __slots__ = ()

    grammar: ClassVar[str]
    """Its text, as `{field:kind}`; see `partc.format.program_text.KINDS`."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The values that it uses, which must be there before it."""
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        """The values that are there after it."""
        return ()

    @property
    def awaits(self) -> tuple[Message, ...]:
        """The messages that it waits for."""
        return ()

    @property
    def sends(self) -> tuple[Message, ...]:
        """The messages that it sends; sending never waits."""
        return ()


@dataclass(frozen=True, slots=True)
class Recv(_Entry):
    """Wait for the one message that holds these values."""

    grammar: ClassVar[str] = "recv {values:names} from {device:device}"

    values: tuple[str, ...]
    device: str

    @property
    def writes(self) -> tuple[str, ...]:
        """The values of the message."""
        return self.values

    @property
    def awaits(self) -> tuple[Message, ...]:
        """The message."""
        return (Message(self.device, self.values),)


@dataclass(frozen=True, slots=True)
class Run(_Entry):
    """Compute a sub-module; the values meet its `inputs` and `outputs` by position.

    Without states it may be called with other values than its own, again and again. What it is given then has the sizes
    that stand for the symbols in the shapes of its own inputs; where all outputs are empty, nothing is computed.
    """

    grammar: ClassVar[str] = "run {submodule:name} {inputs:tuple} -> {outputs:tuple}"

    submodule: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The inputs."""
        return self.inputs

    @property
    def writes(self) -> tuple[str, ...]:
        """The outputs."""
        return self.outputs


@dataclass(frozen=True, slots=True)
class Send(_Entry):
    """Send one message with these values; never waits."""

    grammar: ClassVar[str] = "send {values:names} to {device:device}"

    values: tuple[str, ...]
    device: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The values of the message."""
        return self.values

    @property
    def sends(self) -> tuple[Message, ...]:
        """The message."""
        return (Message(self.device, self.values),)


@dataclass(frozen=True, slots=True)
class Sample(_Entry):
    """Draw a token i64[batch] from logits [batch, 1, vocabulary]."""

    grammar: ClassVar[str] = "sample {logits:name} -> {token:name}"

    logits: str
    token: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The logits."""
        return (self.logits,)

    @property
    def writes(self) -> tuple[str, ...]:
        """The token."""
        return (self.token,)


@dataclass(frozen=True, slots=True)
class Add(_Entry):
    """Add values of float32 and of one shape, from the first to the last; so the sum has the same bits everywhere."""

    grammar: ClassVar[str] = "add {terms:names} -> {total:name}"

    terms: tuple[str, ...]
    total: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The terms."""
        return self.terms

    @property
    def writes(self) -> tuple[str, ...]:
        """The sum."""
        return (self.total,)


@dataclass(frozen=True, slots=True)
class Cut(_Entry):
    """Cut a value along an axis: of n parts, part i has the indices from size·i//n to size·(i+1)//n, or none."""

    grammar: ClassVar[str] = "cut {whole:name} -> {parts:names} along {axis:axis}"

    whole: str
    parts: tuple[str, ...]
    axis: int

    @property
    def reads(self) -> tuple[str, ...]:
        """The value."""
        return (self.whole,)

    @property
    def writes(self) -> tuple[str, ...]:
        """The parts."""
        return self.parts


@dataclass(frozen=True, slots=True)
class Join(_Entry):
    """Join values along an axis, in their order."""

    grammar: ClassVar[str] = "join {parts:names} -> {whole:name} along {axis:axis}"

    parts: tuple[str, ...]
    whole: str
    axis: int

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts."""
        return self.parts

    @property
    def writes(self) -> tuple[str, ...]:
        """The value."""
        return (self.whole,)


@dataclass(frozen=True, slots=True)
class Emit(_Entry):
    """Hand values to the client of the request; on the source only."""

    grammar: ClassVar[str] = "emit {values:names}"

    values: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The values."""
        return self.values


@dataclass(frozen=True, slots=True)
class Keep(_Entry):
    """Keep values for the later steps of the request, which read them by the same names."""

    grammar: ClassVar[str] = "keep {values:names}"

    values: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The values."""
        return self.values


Instruction = Recv | Run | Send | Sample | Add | Cut | Join | Emit | Keep
Program = tuple[Instruction, ...]

INSTRUCTIONS: dict[str, type[Instruction]] = {kind.grammar.split()[0]: kind for kind in get_args(Instruction)}
"""First word → class."""

ONCE = "_once"
"""End of the names of sub-modules that only the first step of a request runs."""


def piece_of(submodule: str) -> str:
    """The piece that a sub-module computes: in the first step of a request alone, or in all steps."""
    return submodule.removesuffix(ONCE)


def row_symbol(submodule: str) -> str:
    """The symbol of the tokens that a step of a sub-module computes: of a source, or those of the step itself."""
    return SOURCE if submodule.endswith(ONCE) else "sequence"


CHUNK = "chunk"
"""The phase of a part of a prompt behind which more comes; its programs follow from those of `prefill`."""

REPLAY = "replay"
"""The phase of a decode step that is computed again, and whose token is not waited for; its programs follow from those
of `decode` in the same way."""


def parse_program(text: str, where: str = "program") -> Program:
    """Read a program.

    Raises:
        BundleError: naming `where` and the line.
    """
    lines = (Line(line, f"{where}, line {number}") for number, line in enumerate(text.split("\n"), start=1))
    return tuple(_parse_line(line) for line in lines if not line.at_end())


def _parse_line(line: Line) -> Instruction:
    word = line.name("an instruction")
    kind = INSTRUCTIONS.get(word)
    if kind is None:
        raise line.error(f"unknown instruction {word!r}", f"one of {', '.join(INSTRUCTIONS)}")
    fields = read_fields(line, kind.grammar)
    line.expect_end()
    return kind(**fields)


def print_program(program: Iterable[Instruction]) -> str:
    """The text of a program: one line per instruction, `parse_program` is its inverse."""
    return "".join(f"{print_instruction(instruction)}\n" for instruction in program)


def print_instruction(instruction: Instruction) -> str:
    """The text of one instruction, without a line end."""
    return print_fields(instruction.grammar, instruction)


def kept_by(program: Iterable[Instruction]) -> tuple[str, ...]:
    """The values that a program keeps for later steps."""
    return tuple(name for item in program if isinstance(item, Keep) for name in item.values)


def tokenless(program: Program) -> Program:
    """The program of a step whose token is not wanted: a part of a prompt behind which more comes, or a replayed step.

    Nothing is sampled, emitted, or sent to where it would be.
    """
    sampled = {item.token for item in program if isinstance(item, Sample)}
    tokens = sampled.union(*(item.values for item in program if isinstance(item, Emit)))
    return tuple(item for item in program if not _is_of_tokens(item, tokens))


def _is_of_tokens(instruction: Instruction, tokens: set[str]) -> bool:
    match instruction:
        case Sample() | Emit():
            return True
        case Send(values=values) | Recv(values=values):
            return tokens.issuperset(values)
        case Run() | Add() | Cut() | Join() | Keep():
            return False
    assert_never(instruction)
