"""The text of instructions: one line read token by token, and lines written, both by an instruction's `grammar`.

A grammar is text with fields, `recv {values:names} from {device:device}`: words stand for themselves, after the first
one, which names the instruction; what stands for a field follows from its kind (`KINDS`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from string import Formatter
from typing import Any

from partc.errors import BundleError
from partc.format.json_text import parse_json

DEVICE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BARE_NAME = re.compile(r"[A-Za-z0-9_.:/@$%+\[\]-]+")
_AXIS = re.compile(r"[0-9]|1[0-5]")
_SPACE = " \t\n\v\f\r"
_TOKEN = re.compile(
    rf'[{_SPACE}]*(?:("(?:[^"\\]|\\.)*")|(->)|([,()])|([A-Za-z0-9_.:/@$%+\[\]]|-(?!>))+|(#.*)|$)'
)


class Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._tokens = self._split(text)
        self._next = 0

    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self._next == len(self._tokens)

    def expect_end(self) -> None:
        """Refuse what is left."""
        if not self.at_end():
            raise self.error(f"{self._tokens[self._next]!r} is too much", "one instruction a line")

    def name(self, what: str = "a name") -> str:
        """Take a name, bare or in quotes."""
        token = self._take(what)
        if token.startswith('"'):
            return self._unquote(token)
        if not _BARE_NAME.fullmatch(token):
            raise self.error(f"{what} expected before {token!r}")
        return token

    def literal(self, text: str) -> None:
        """Take this word."""
        token = self._take(repr(text))
        if token != text:
            raise self.error(f"{text!r} expected before {token!r}")

    def device(self) -> str:
        """Take the name of a device."""
        token = self._take("a device")
        if not DEVICE_NAME.fullmatch(token):
            raise self.error(f"{token!r} is no device name", "lower-case letters, digits and _")
        return token

    def names(self) -> tuple[str, ...]:
        """Take one name or several, each once."""
        found = [self.name("a value")]
        while not self.at_end() and self._tokens[self._next] == ",":
            self._next += 1
            found.append(self.name("a value"))
        repeated = sorted({name for name in found if found.count(name) > 1})
        if repeated:
            raise self.error(f"{repeated[0]!r} stands twice in one list")
        return tuple(found)

    def tuple(self) -> tuple[str, ...]:
        """Take names in parentheses, or none."""
        self.literal("(")
        empty = not self.at_end() and self._tokens[self._next] == ")"
        found = () if empty else self.names()
        self.literal(")")
        return found

    def axis(self) -> int:
        """Take the number of an axis."""
        token = self._take("an axis")
        if not _AXIS.fullmatch(token):
            raise self.error(f"{token!r} is no axis", "a number from 0 to 15")
        return int(token)

    def error(self, message: str, hint: str | None = None) -> BundleError:
        """An error that names the line."""
        return BundleError(message, where=self._where, hint=hint)

    def _take(self, what: str) -> str:
        if self.at_end():
            raise self.error(f"{what} expected at the end of the line")
        self._next += 1
        return self._tokens[self._next - 1]

    def _unquote(self, token: str) -> str:
        try:
            return str(parse_json(token, "", BundleError, None))
        except BundleError as error:
            raise self.error(f"{token} is not a JSON string") from error

    def _split(self, text: str) -> list[str]:
        tokens, at = [], 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"cannot read {text[at:].strip()!r}", "odd names stand in double quotes")
            at = match.end()
            token = match.group().strip(_SPACE)
            if token and not token.startswith("#"):
                tokens.append(token)
        return tokens


def _print_name(name: str) -> str:
    bare = _BARE_NAME.fullmatch(name) and "->" not in name
    return name if bare else json.dumps(name)


def _print_names(names: tuple[str, ...]) -> str:
    return ", ".join(map(_print_name, names))


KINDS: dict[str, tuple[Callable[[Line], Any], Callable[[Any], str]]] = {
    "name": (Line.name, _print_name),
    "names": (Line.names, _print_names),
    "tuple": (Line.tuple, lambda names: f"({_print_names(names)})"),
    "device": (Line.device, str),
    "axis": (Line.axis, str),
}
"""Kind of a field → how it is read, and how it is written."""


def read_fields(line: Line, grammar: str) -> dict[str, Any]:
    """The fields of an instruction whose first word was taken.

    Raises:
        BundleError: the line does not follow the grammar.
    """
    fields = {}
    for place, (text, field, kind, _) in enumerate(Formatter().parse(grammar)):
        for word in text.split()[1 if place == 0 else 0 :]:
            line.literal(word)
        if field is not None:
            fields[field] = KINDS[kind or ""][0](line)
    return fields


def print_fields(grammar: str, instruction: object) -> str:
    """The text of an instruction."""
    return "".join(
        text + ("" if field is None else KINDS[kind or ""][1](getattr(instruction, field)))
        for text, field, kind, _ in Formatter().parse(grammar)
    )
