"""The program of a device for one step of one request: a list of instructions, and their text.

```
program     := { line }
line        := [ instruction ] [ "#" comment ]
instruction := "recv" names "from" device           one message that holds all of them; waits for it
             | "run" name tuple "->" tuple          a sub-module, with its inputs and outputs by position
             | "send" names "to" device             one message; never waits
             | "sample" name "->" name              logits to tokens
             | "emit" names                         hand to the client (source only)
names       := name { "," name }
tuple       := "(" [ names ] ")"
name        := letters, digits and . _ : / @ $ % + - [ ]   or any text as a JSON string
device      := [a-z][a-z0-9_]*
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from partc.errors import BundleError


@dataclass(frozen=True, slots=True)
class Recv:
    """Wait for the one message from `device` that holds `values`."""

    values: tuple[str, ...]
    device: str


@dataclass(frozen=True, slots=True)
class Run:
    """Compute a sub-module; program values meet its inputs and outputs by position."""

    submodule: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Queue one message with `values` for `device`."""

    values: tuple[str, ...]
    device: str


@dataclass(frozen=True, slots=True)
class Sample:
    """Turn `logits` (batch, 1, vocabulary) into `token` (batch, int64)."""

    logits: str
    token: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand `values` to the client of the request."""

    values: tuple[str, ...]


Instruction = Recv | Run | Send | Sample | Emit
Program = tuple[Instruction, ...]

CHUNK = "chunk"
"""The phase of a part of a prompt behind which more comes; its programs follow from those of `prefill`."""

DEVICE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BARE_NAME = re.compile(r"[A-Za-z0-9_.:/@$%+\[\]-]+")
_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(->)|([,()])|([A-Za-z0-9_.:/@$%+\[\]]|-(?!>))+|(#.*)|$)')


def parse_program(text: str, where: str = "program") -> Program:
    """Read a program.

    Raises:
        BundleError: naming `where` and the line.
    """
    parsed = []
    for number, line in enumerate(text.split("\n"), start=1):
        cursor = _Line(line, f"{where}, line {number}")
        if not cursor.at_end():
            parsed.append(_instruction(cursor))
            cursor.expect_end()
    return tuple(parsed)


def print_program(program: Iterable[Instruction]) -> str:
    """The text of a program: one line per instruction, `parse_program` is its inverse."""
    return "".join(f"{print_instruction(instruction)}\n" for instruction in program)


def print_instruction(instruction: Instruction) -> str:
    """The text of one instruction, without a line end."""
    match instruction:
        case Recv(values, device):
            return f"recv {_names(values)} from {device}"
        case Run(submodule, inputs, outputs):
            return f"run {_name(submodule)} ({_names(inputs)}) -> ({_names(outputs)})"
        case Send(values, device):
            return f"send {_names(values)} to {device}"
        case Sample(logits, token):
            return f"sample {_name(logits)} -> {_name(token)}"
        case Emit(values):
            return f"emit {_names(values)}"


def reads(instruction: Instruction) -> tuple[str, ...]:
    """The values that an instruction uses."""
    match instruction:
        case Run(inputs=values) | Send(values=values) | Emit(values=values):
            return values
        case Sample(logits=logits):
            return (logits,)
        case Recv():
            return ()


def writes(instruction: Instruction) -> tuple[str, ...]:
    """The values that an instruction makes."""
    match instruction:
        case Recv(values=values) | Run(outputs=values):
            return values
        case Sample(token=token):
            return (token,)
        case Send() | Emit():
            return ()


def chunk_program(prefill: Program) -> Program:
    """The program of a device for a part of a prompt behind which more comes.

    That is `prefill`, but no token comes of it: nothing is sampled, emitted, or sent to where it would be.
    """
    sampled = {item.token for item in prefill if isinstance(item, Sample)}
    tokens = sampled.union(*(item.values for item in prefill if isinstance(item, Emit)))
    return tuple(item for item in prefill if not _is_of_tokens(item, tokens))


def _is_of_tokens(instruction: Instruction, tokens: set[str]) -> bool:
    match instruction:
        case Sample() | Emit():
            return True
        case Send(values=values) | Recv(values=values):
            return tokens.issuperset(values)
        case Run():
            return False


def _instruction(line: _Line) -> Instruction:
    operation = line.name("an instruction")
    match operation:
        case "recv":
            return Recv(line.names(), line.device("from"))
        case "run":
            submodule, inputs = line.name("a sub-module"), line.tuple()
            line.literal("->")
            return Run(submodule, inputs, line.tuple())
        case "send":
            return Send(line.names(), line.device("to"))
        case "sample":
            logits = line.name("a value")
            line.literal("->")
            return Sample(logits, line.name("a value"))
        case "emit":
            return Emit(line.names())
    raise line.error(f"unknown instruction {operation!r}", "one of recv, run, send, sample, emit")


class _Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._tokens = self._split(text)
        self._next = 0

    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    def expect_end(self) -> None:
        if not self.at_end():
            raise self.error(f"{self._tokens[self._next]!r} is too much", "one instruction a line")

    def name(self, what: str) -> str:
        token = self._take(what)
        if token.startswith('"'):
            return self._unquote(token)
        if not _BARE_NAME.fullmatch(token):
            raise self.error(f"{what} expected before {token!r}")
        return token

    def literal(self, text: str) -> None:
        token = self._take(repr(text))
        if token != text:
            raise self.error(f"{text!r} expected before {token!r}")

    def device(self, keyword: str) -> str:
        self.literal(keyword)
        token = self._take("a device")
        if not DEVICE_NAME.fullmatch(token):
            raise self.error(f"{token!r} is no device name", "lower-case letters, digits and _")
        return token

    def names(self) -> tuple[str, ...]:
        found = [self.name("a value")]
        while not self.at_end() and self._tokens[self._next] == ",":
            self._next += 1
            found.append(self.name("a value"))
        repeated = sorted({name for name in found if found.count(name) > 1})
        if repeated:
            raise self.error(f"{repeated[0]!r} stands twice in one list")
        return tuple(found)

    def tuple(self) -> tuple[str, ...]:
        self.literal("(")
        empty = not self.at_end() and self._tokens[self._next] == ")"
        found = () if empty else self.names()
        self.literal(")")
        return found

    def error(self, message: str, hint: str | None = None) -> BundleError:
        return BundleError(message, where=self._where, hint=hint)

    def _take(self, what: str) -> str:
        if self.at_end():
            raise self.error(f"{what} expected at the end of the line")
        self._next += 1
        return self._tokens[self._next - 1]

    def _unquote(self, token: str) -> str:
        try:
            return str(json.loads(token))
        except json.JSONDecodeError as error:
            raise self.error(f"{token} is not a JSON string") from error

    def _split(self, text: str) -> list[str]:
        tokens, at = [], 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"cannot read {text[at:].strip()!r}", "odd names stand in double quotes")
            at = match.end()
            token = match.group().strip()
            if token and not token.startswith("#"):
                tokens.append(token)
        return tokens


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(_name(name) for name in names)


def _name(name: str) -> str:
    bare = _BARE_NAME.fullmatch(name) and "->" not in name
    return name if bare else json.dumps(name)
