"""Command lines in the manuals, run or not, are such as partc takes: sub-commands, options, and their values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from partc.cli.main import partc
from partc.runtime.cli import _parser
from tests.manuals.blocks import ROOT, Block, blocks_of, command_lines, inline_commands, manuals

MANUALS = [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in manuals()]


def refusal(words: Sequence[str]) -> str | None:
    """The complaint of the command line's parser; nothing is executed."""
    program, *arguments = words
    if program == "partc-runner":
        return _runner_refusal(arguments)
    command: click.Command = partc
    try:
        while isinstance(command, click.Group):
            name, *arguments = arguments
            found = command.get_command(_context(command), name)
            if found is None:
                return f"no sub-command {name}"
            command = found
        command.make_context("partc", list(arguments), parent=_context(partc))
    except ValueError:
        return "no sub-command"
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()
    return None


def _runner_refusal(arguments: Sequence[str]) -> str | None:
    parser = _parser()
    try:
        parser.exit_on_error = False
        parser.parse_args(list(arguments))
    except (argparse.ArgumentError, SystemExit) as error:
        return str(error)
    return None


@pytest.mark.parametrize("manual", MANUALS)
def test_command_lines_of_blocks_are_taken(manual: Path) -> None:
    lines = [
        (block.line, words)
        for block in blocks_of(manual)
        if block.has_commands
        for words in command_lines(block.script)
    ]
    assert [(line, words, said) for line, words in lines if (said := refusal(words))] == []


@pytest.mark.parametrize("manual", MANUALS)
def test_options_in_running_text_exist(manual: Path) -> None:
    """`partc deploy --to adb` in a sentence leaves arguments out, so only names are compared."""
    assert [words for words in inline_commands(manual) if not _has_options(words)] == []


def _context(command: click.Command) -> click.Context:
    """A context as the program makes it: commands keep the help option of the first one that they see."""
    return click.Context(command, **partc.context_settings)


def _has_options(words: Sequence[str]) -> bool:
    program, *rest = words
    if program == "partc-runner":
        known = set(_parser()._option_string_actions)
    else:
        command: click.Command = partc
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            found = command.get_command(_context(command), rest[0])
            if found is None:
                return False
            command, rest = found, rest[1:]
        known = {name for option in command.get_params(_context(command)) for name in option.opts}
        known |= {name for option in command.get_params(_context(command)) for name in option.secondary_opts}
    return {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"} <= known


@pytest.mark.parametrize("manual", MANUALS)
def test_a_reason_stands_before_a_block_of_commands(manual: Path) -> None:
    """Elsewhere it would say nothing: a comment that moved away from its block is an error."""
    text = manual.read_text(encoding="utf-8")
    reasons = [block for block in blocks_of(manual) if block.reason]
    assert len(re.findall(r"^<!-- not run:", text, re.MULTILINE)) == len(reasons)
    others = [block for block in reasons if not block.has_commands and block.language != "python"]
    assert [block.line for block in others] == []


def test_what_would_be_wrong_is_found() -> None:
    assert refusal(["partc", "compile", "m.yaml", "--target", "d.yaml"]) is None
    assert refusal(["partc", "fleet", "status"]) is None
    assert refusal(["partc", "no-such"]) == "no sub-command no-such"
    assert "--no-such" in str(refusal(["partc", "run", "build", "--no-such"]))
    assert "systemed" in str(refusal(["partc", "deploy", "build", "--to", "systemed"]))
    assert refusal(["partc-runner", "--bundle", "b", "--listen", "nowhere"])
    assert not _has_options(["partc", "run", "--no-such"])
    assert list(
        command_lines("A=1 partc plan m | partc opt - -p x  # then\ncd x && ./b/partc-runner -h")
    ) == [
        ["partc", "plan", "m"],
        ["partc", "opt", "-", "-p", "x"],
        ["partc-runner", "-h"],
    ]
    shown = Block("m", 1, "console", "$ partc watch\nits output\n", None)
    assert shown.script == "partc watch\n"
