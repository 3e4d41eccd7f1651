"""What `--help` of each program says, in its parts; manual pages and the site of the manuals are made of it."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from partc.cli import main as command_line
from partc.runtime.cli import _parser

Row = tuple[str, str]
"""A term and what it means."""
_RUNNER = "partc-runner"


@dataclass(frozen=True)
class Command:
    """A program, or a command of one, as its help describes it."""

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
    """Names of other commands."""

    @property
    def name(self) -> str:
        """`partc-fleet-up`, as man is asked for it."""
        return self.program.replace(" ", "-")


def commands() -> list[Command]:
    """`partc`, all its commands, each before those below it, and `partc-runner`."""
    root = click.Context(command_line.partc, info_name="partc", **command_line.partc.context_settings)
    return [*_of_command(root), _of_parser(_parser())]


def _of_command(context: click.Context) -> Iterator[Command]:
    """A command, and those below it."""
    command = context.command
    below = [
        click.Context(one, info_name=name, parent=context, **command_line.partc.context_settings)
        for name, one in _subcommands(context)
    ]
    parents = [context.parent] if context.parent is not None else []
    is_first = not parents
    yield Command(
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


def _subcommands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
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


def _of_parser(parser: argparse.ArgumentParser) -> Command:
    """A program whose command line argparse reads."""
    formatter = parser._get_formatter()
    described = [one for one in parser._actions if one.help is not argparse.SUPPRESS]
    _, examples, codes = re.split(r"^(?:examples|exit codes):\n", parser.epilog or "", flags=re.MULTILINE)
    usage = " ".join(parser.format_usage().split()).removeprefix(f"usage: {parser.prog} ")
    description = parser.description or ""
    return Command(
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
