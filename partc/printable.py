"""Texts of others at a terminal.

A device, a server, a model or a file may send any text. Written as it came, a control character in it would be a
command to the terminal: set its title, clear it, answer in the user's name.
"""

from __future__ import annotations

import re
import sys

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""C0 but tabs and line ends, DEL, C1; separators of lines, and marks that turn the direction of what follows."""


def printable(text: str) -> str:
    """A text in which control characters but tabs and line ends stand as escapes, ESC as a backslash and `x1b`.

    Halves of surrogate pairs, which no terminal could be sent, become U+FFFD. The native runner has the same functions
    (native/src/format/text.hpp).
    """
    whole = text.encode(errors="surrogatepass").decode(errors="replace")
    return _CONTROL.sub(_escape, whole)


def one_line(text: str, most: int) -> str:
    """The first `most` characters of a text, printable; tabs and line ends stand as escapes, too."""
    return printable(text[:most]).replace("\t", _escape("\t")).replace("\n", _escape("\n"))


def note(text: str) -> None:
    """A line `note: …` on standard error."""
    print(printable(f"note: {text}"), file=sys.stderr, flush=True)


def _escape(found: re.Match[str] | str) -> str:
    number = ord(found if isinstance(found, str) else found.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
