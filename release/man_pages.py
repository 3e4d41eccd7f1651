"""Manual pages of the commands: what `--help` says stands there, and nothing else.

click-man, the library for this, leaves the examples and the commands of groups out, and knows no argparse.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from partc import __version__
from release.commands import Command, Row

_MANUAL = "Manual of partc"


def page_file(command: Command) -> str:
    """The name of the file of a command's page, which is of section 1."""
    return f"{command.name}.1"


def page(command: Command, seconds: int) -> str:
    """The page of a command in the language of man(7); `seconds` since 1970 give its date."""
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    title = f'.TH "{_escaped(command.name.upper())}" 1 {date} "partc {__version__}" "{_MANUAL}"'
    return "\n".join([title, *_lines(command)]) + "\n"


def _lines(command: Command) -> Iterator[str]:
    yield from (".SH NAME", f"{_escaped(command.name)} \\- {_escaped(command.summary)}")
    yield from (".SH SYNOPSIS", f".B {_escaped(command.program)}", _escaped(command.usage))
    yield ".SH DESCRIPTION"
    yield from _joined(command.paragraphs)
    yield from _table("COMMANDS", command.commands)
    yield from _table("OPTIONS", command.options)
    yield from _table("EXIT STATUS", command.exit_codes)
    if command.examples:
        yield from (".SH EXAMPLES", ".nf", *map(_escaped, command.examples), ".fi")
    if command.see_also:
        yield from (".SH SEE ALSO", ", ".join(f"\\fB{_escaped(name)}\\fR(1)" for name in command.see_also))


def _table(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield f".SH {title}"
    for term, meaning in rows:
        yield from (".TP", f"\\fB{_escaped(term)}\\fR", _escaped(" ".join(meaning.split())))


def _joined(paragraphs: Iterable[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield from map(_escaped, paragraph.splitlines())


def _escaped(text: str) -> str:
    """The text as roff prints it: backslashes and hyphens as they are, no line taken for a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
