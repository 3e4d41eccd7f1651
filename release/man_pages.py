"""Manual pages from the help of the programs themselves: what `--help` says stands there, and nothing else.

click-man, the library for this, leaves the examples and the commands of groups out, and knows no argparse.
"""

from __future__ import annotations

import argparse
import inspect
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from partc import __version__
from partc.cli import main as command_line
from partc.runtime.cli import _parser

Row = tuple[str, str]
"""A term and what it means."""
_MANUAL = "Manual of partc"
_RUNNER = "partc-runner"


@dataclass(frozen=True)
class Page:
    """A manual page of section 1."""

    program: str
    """`partc fleet up`: the words of the command line."""
    summary: str
    usage: str
    """What follows the name of the program."""
    paragraphs: Sequence[str]
    options: Sequence[Row]
    commands: Sequence[Row] = ()
    examples: Sequence[str] = ()
    """Lines that are kept as they are."""
    exit_codes: Sequence[Row] = ()
    see_also: Sequence[str] = ()
    """Names of other pages."""

    @property
    def name(self) -> str:
        """`partc-fleet-up`, as man is asked for it."""
        return self.program.replace(" ", "-")

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.1"

    def text(self, seconds: int) -> str:
        """The page in the language of man(7); `seconds` since 1970 give its date."""
        date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
        title = f'.TH "{_escaped(self.name.upper())}" 1 {date} "partc {__version__}" "{_MANUAL}"'
        return "\n".join([title, *self._lines()]) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from (".SH NAME", f"{_escaped(self.name)} \\- {_escaped(self.summary)}")
        yield from (".SH SYNOPSIS", f".B {_escaped(self.program)}", _escaped(self.usage))
        yield ".SH DESCRIPTION"
        yield from _joined(self.paragraphs)
        yield from _table("COMMANDS", self.commands)
        yield from _table("OPTIONS", self.options)
        yield from _table("EXIT STATUS", self.exit_codes)
        if self.examples:
            yield from (".SH EXAMPLES", ".nf", *map(_escaped, self.examples), ".fi")
        if self.see_also:
            yield from (".SH SEE ALSO", ", ".join(f"\\fB{_escaped(name)}\\fR(1)" for name in self.see_also))


def pages() -> list[Page]:
    """The pages of `partc`, of all its commands, and of `partc-runner`."""
    root = click.Context(command_line.partc, info_name="partc", **command_line.partc.context_settings)
    return [*_of_command(root), _of_parser(_parser())]


def _of_command(context: click.Context) -> Iterator[Page]:
    """The page of a command, and of those below it."""
    command = context.command
    below = [
        click.Context(one, info_name=name, parent=context, **command_line.partc.context_settings)
        for name, one in _commands(context)
    ]
    parents = [context.parent] if context.parent is not None else []
    is_first = not parents
    yield Page(
        program=context.command_path,
        summary=_summary(command),
        usage=" ".join(command.collect_usage_pieces(context)),
        paragraphs=_paragraphs(command.help or ""),
        options=[row for one in command.get_params(context) if (row := one.get_help_record(context))],
        commands=[(one.info_name or "", _summary(one.command)) for one in below],
        examples=_examples(command.epilog or ""),
        exit_codes=_exit_codes() if is_first else (),
        see_also=[*map(_name, parents), *map(_name, below), *([_RUNNER] if is_first else [])],
    )
    for one in below:
        yield from _of_command(one)


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            if (found := context.command.get_command(context, name)) is not None:
                yield name, found


def _name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=200).rstrip(".")


def _paragraphs(text: str) -> list[str]:
    """Paragraphs of a help text, without click's marks."""
    return [part for part in inspect.cleandoc(text).replace("\b\n", "").split("\n\n") if part]


def _examples(epilog: str) -> list[str]:
    """The lines of `partc.cli.options.example`."""
    return [line.strip() for line in epilog.splitlines() if line.startswith("  ")]


def _exit_codes() -> list[Row]:
    """The table in the docstring of the command line."""
    rows = re.findall(r"^\| ([\d, ]+) \| (.+) \|$", command_line.__doc__ or "", re.MULTILINE)
    return [(code, meaning) for code, meaning in rows]


def _of_parser(parser: argparse.ArgumentParser) -> Page:
    """The page of a program whose command line argparse reads."""
    formatter = parser._get_formatter()
    described = [one for one in parser._actions if one.help is not argparse.SUPPRESS]
    _, examples, codes = re.split(r"^(?:examples|exit codes):\n", parser.epilog or "", flags=re.MULTILINE)
    usage = " ".join(parser.format_usage().split()).removeprefix(f"usage: {parser.prog} ")
    description = parser.description or ""
    return Page(
        program=parser.prog,
        summary=description.rstrip("."),
        usage=usage,
        paragraphs=[description],
        options=[
            (formatter._format_action_invocation(one), formatter._expand_help(one)) for one in described
        ],
        examples=[line[2:] for line in examples.rstrip().splitlines()],
        exit_codes=[(code, meaning) for code, _, meaning in (one.partition(" ") for one in _codes(codes))],
        see_also=["partc"],
    )


def _codes(text: str) -> list[str]:
    """The parts of `0 stopped, 1 wrong bundle, keys or address`, each with its number."""
    return re.split(r",\s+(?=\d)", " ".join(text.split()))


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
