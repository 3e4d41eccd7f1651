"""Values of traces: `kind(field=value, …)`, read into data and written from it.

```
call    := name "(" [ item { "," item } ] ")"
item    := [ name "=" ] value
value   := number | "true" | "false" | "null" | name | JSON string | list | map | row | name "(" text ")"
list    := "[" [ value { "," value } ] "]"
map     := "{" [ name ":" value { "," name ":" value } ] "}"
row     := request "." step "@" position "+" length [ "/" row ] [ "^" branch ]
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:(?P<row>\d+\.\d+@\d+\+\d+(?:/\d+)?(?:\^\d+)?)|(?P<number>-?\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<word>[A-Za-z_][\w-]*(?:\((?:[^()]*)\))?)|(?P<sign>[\[\]{},:=]))""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "null": None}


class TraceError(Exception):
    """A line is no line of a trace."""


@dataclass
class Call:
    """A parsed `name(…)`."""

    name: str
    bare: list[Any] = field(default_factory=list)
    """Items without a name."""
    named: dict[str, Any] = field(default_factory=dict)


def parse_call(text: str) -> Call:
    """Read `name(…)`, or a name alone."""
    name, bracket, rest = text.strip().partition("(")
    call = Call(name.strip())
    if not bracket:
        return call
    if not rest.endswith(")"):
        raise TraceError(f"{text!r} does not end with a bracket")
    cursor = _Cursor(rest[:-1])
    while not cursor.at_end():
        _item(cursor, call)
        if not cursor.at_end():
            cursor.expect(",")
    return call


def print_call(name: str, bare: Sequence[str], named: Mapping[str, str]) -> str:
    """The text of `name(…)`."""
    return f"{name}({', '.join([*bare, *(f'{key}={text}' for key, text in named.items())])})"


def print_value(value: Any) -> str:
    """The text of data: numbers, texts, lists, maps with names as keys."""
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return value if re.fullmatch(r"[A-Za-z_][\w-]*", value) else json.dumps(value)
        case int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case Mapping():
            return f"{{{', '.join(f'{key}: {print_value(item)}' for key, item in value.items())}}}"
        case _:
            return f"[{', '.join(map(print_value, value))}]"


def _item(cursor: _Cursor, call: Call) -> None:
    kind, text = cursor.take()
    if kind == "word" and cursor.next_is("="):
        cursor.expect("=")
        call.named[text] = _value(cursor, *cursor.take())
    else:
        call.bare.append(_value(cursor, kind, text))


def _value(cursor: _Cursor, kind: str, text: str) -> Any:
    if kind == "number":
        return json.loads(text)
    if kind == "text":
        return json.loads(text)
    if kind == "row":
        found = re.fullmatch(r"(\d+)\.(\d+)@(\d+)\+(\d+)(?:/(\d+))?(?:\^(\d+))?", text)
        assert found is not None, text
        request, step, position, length, row, branch = [
            None if each is None else int(each) for each in found.groups()
        ]
        return {"row": [request, row, step, position, length, branch]}
    if kind == "word":
        return _WORDS.get(text, text)
    if text == "[":
        return _list(cursor)
    if text == "{":
        return _map(cursor)
    raise TraceError(f"{text!r} is no value")


def _list(cursor: _Cursor) -> list[Any]:
    found = []
    while not cursor.next_is("]"):
        found.append(_value(cursor, *cursor.take()))
        if not cursor.next_is("]"):
            cursor.expect(",")
    cursor.expect("]")
    return found


def _map(cursor: _Cursor) -> dict[str, Any]:
    found = {}
    while not cursor.next_is("}"):
        _, key = cursor.take()
        cursor.expect(":")
        found[key] = _value(cursor, *cursor.take())
        if not cursor.next_is("}"):
            cursor.expect(",")
    cursor.expect("}")
    return found


class _Cursor:
    """A cursor over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise TraceError(f"cannot read {text[at:].strip()!r}")
            at = match.end()
            self._tokens.append((str(match.lastgroup), match.group().strip()))
        self._next = 0

    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    def next_is(self, text: str) -> bool:
        return not self.at_end() and self._tokens[self._next][1] == text

    def take(self) -> tuple[str, str]:
        if self.at_end():
            raise TraceError("something is missing at the end")
        self._next += 1
        return self._tokens[self._next - 1]

    def expect(self, text: str) -> None:
        found = self.take()[1]
        if found != text:
            raise TraceError(f"{text!r} expected before {found!r}")
