"""Texts of others at a terminal.

A device, a server, a model or a file may send any text. Written as it came, a control character in it would be a
command to the terminal: set its title, clear it, answer in the user's name.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 but tabs and line ends, DEL, C1."""


def printable(text: str) -> str:
    """A text in which control characters but tabs and line ends stand as escapes, ESC as a backslash and `x1b`.

    Halves of surrogate pairs, which no terminal could be sent, become U+FFFD. The native runner has the same function
    (native/src/format/text.hpp).
    """
    whole = text.encode(errors="surrogatepass").decode(errors="replace")
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", whole)
