"""Text as lines, and a line as a stream of tokens; errors name file, line and column."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from partc.errors import UserError
from partc.format.json_text import parse_json

_SHOWN = 400
"""Characters of a line in a message."""


class Line:
    """One line as a stream of tokens, with errors that name the line."""

    def __init__(self, text: str, number: int, file: str) -> None:
        self.text, self.number, self.file, self.at = text, number, file, 0

    def fail(self, message: str) -> NoReturn:
        """Raise a UserError that names this line and column."""
        raise UserError(
            message,
            where=f"{self.file}:{self.number}:{self.at + 1}",
            hint=f"the line is: {_shorten(self.text.strip())}",
        )

    def _skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self, text: str) -> bool:
        """Whether `text` comes next."""
        self._skip_space()
        return self.text.startswith(text, self.at)

    def accept(self, text: str) -> bool:
        """Take `text` if it comes next."""
        if not self.peek(text):
            return False
        self.at += len(text)
        return True

    def expect(self, text: str) -> None:
        """Take `text`, or fail."""
        if not self.accept(text):
            self.fail(f"expected {text!r}")

    def take(self, pattern: str, what: str) -> str:
        """Take what the pattern matches, or fail for the lack of `what`."""
        self._skip_space()
        found = re.compile(pattern).match(self.text, self.at)
        if found is None:
            self.fail(f"expected {what}")
        self.at = found.end()
        return found.group()

    def string(self) -> str:
        """Take a JSON string."""
        return str(self._json(self.take(r'"(?:[^"\\]|\\.)*"', "a text in quotes")))

    def name(self) -> str:
        """Take a plain or quoted name."""
        if self.peek('"'):
            return self.string()
        return self.take(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]*", "a name")

    def integer(self) -> int:
        """Take a whole number of at most 18 digits."""
        return int(self.take(r"-?[0-9]{1,18}(?![0-9])", "a whole number of at most 18 digits"))

    def rest(self) -> str:
        """Take all that is left."""
        text, self.at = self.text[self.at :].strip(), len(self.text)
        return text

    def data(self) -> Any:
        """Take all that is left as JSON."""
        return self._json(self.rest())

    def _json(self, text: str) -> Any:
        """Strict JSON that ends at the current column."""
        try:
            return parse_json(text, "", UserError, None)
        except UserError as error:
            self.fail(error.message)

    def end(self) -> None:
        """Fail if anything is left."""
        if self.rest():
            self.fail("expected the end of the line")


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class Reader:
    """The lines of a file, blank ones and comments left out."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        numbered = enumerate(text.splitlines(), start=1)
        self.lines = [
            (n, line) for n, line in numbered if line.strip() and not line.lstrip().startswith("//")
        ]
        self.index = 0

    def next(self) -> Line:
        """The next line, or fail at the end of the text."""
        if self.index >= len(self.lines):
            last = self.lines[-1][0] if self.lines else 0
            raise UserError(
                "the text ends too early", where=f"{self.file}:{last}", hint="is the file complete?"
            )
        number, text = self.lines[self.index]
        self.index += 1
        return Line(text, number, self.file)

    @property
    def number(self) -> int:
        """The number of the line that was taken last."""
        return self.lines[self.index - 1][0] if self.lines else 0

    @property
    def done(self) -> bool:
        """Whether all lines have been taken."""
        return self.index >= len(self.lines)
