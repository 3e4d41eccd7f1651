"""The entry point `partc`: the table of commands, and what every outcome means to the shell.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | a file, a model, a plan that cannot be met, a device that was lost; says what, where and what to do |
| 2 | the command line itself |
| 70 | a bug of partc, with its traceback |
| 130, 141, 143 | stopped by Ctrl-C, by a closed pipe, by a termination signal |
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from partc import __version__, interrupts
from partc.cli.completion import complete
from partc.cli.options import example
from partc.errors import PartcError
from partc.extras import extra_of, install_command
from partc.format.plain_files import utf8
from partc.printable import printable
from partc.quiet import quieten_libraries

COMMANDS = (
    "compile",
    "plan",
    "simulate",
    "lower",
    "opt",
    "run",
    "serve",
    "watch",
    "move",
    "verify",
    "golden",
    "diff",
    "report",
    "keys",
    "deploy",
    "fleet",
    "profile",
    "quantize",
    "completion",
)
"""Every command, in the order of a first use."""

_ROOM = "make room there, or give another place"
_RIGHT = "change who may read and write there, or give another place"
_SURROUNDINGS = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "raise the limit (ulimit -f), or give a place whose file system takes such files (FAT: 4 GiB)",
    errno.EROFS: _RIGHT,
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.ENAMETOOLONG: "give a shorter name",
}
"""Errors of the system that are no bug of partc → a hint."""
_PATHS = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
"""Errors of the system that are due to a path, where it names one → a hint."""


class _StandardOutput(io.FileIO):
    """Standard output whose errors name it: those of a write name no file."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "standard output"
            raise


class _Imported(dict[str, click.Command]):
    """Name → command, in the order of `COMMANDS`; one is imported when it is asked for."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))  # type: ignore[arg-type]  # nothing is imported yet

    def __getitem__(self, name: str) -> click.Command:
        if super().__getitem__(name) is None:
            self[name] = getattr(import_module(f"partc.cli.{name}"), f"{name}_command")
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]


class _Commands(click.Group):
    """Lists the commands in their own order instead of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Commands,
    commands=_Imported(),
    epilog=example(
        "partc compile model.yaml --target devices.yaml -o build",
        'partc run build --prompt "Once upon a time"',
        "partc verify build",
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="partc", message="%(prog)s %(version)s")
def partc() -> None:
    """Cut a transformer into parts for the small devices that you have."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line in this process and return its exit code; messages go to `sys.stderr`."""
    try:
        for argument in arguments:
            utf8(argument)  # libraries take names in UTF-8 alone
        with partc.make_context("partc", list(arguments)) as context:
            partc.invoke(context)
        sys.stdout.flush()
    except BaseException as error:
        return exit_code(error, arguments[0] if arguments else "")
    return 0


def exit_code(error: BaseException, command: str = "") -> int:
    """The exit code of the table above for what ended a command; says on stderr what happened.

    Args:
        error: what ended it.
        command: its name, `serve`; it decides which extra brings a package that is missing.
    """
    if interrupts.exit_code() == 130:  # whatever came of it: libraries turn it into errors of their own
        error = KeyboardInterrupt()
    match error:
        case SystemExit(code=code):
            return code if isinstance(code, int) else int(code is not None)
        case click.exceptions.Exit(exit_code=code):
            return int(code)
        case PartcError(exit_code=1):
            _complain(error.message, error.where, error.hint)
            return 1
        case click.ClickException():
            _show(error)
            return 2
        case BrokenPipeError():
            return 141
        case KeyboardInterrupt() | click.Abort():
            click.echo("interrupted", err=True)
            return 130
        case OSError(errno=number) if number in _SURROUNDINGS:
            _complain(str(error.strerror), error.filename, _SURROUNDINGS[number])
            return 1
        case OSError(errno=number, filename=str(name)) if number in _PATHS:
            _complain(str(error.strerror), name, "see that its folder is there, and is a folder")
            return 1
        case ModuleNotFoundError(name=str(name)) if extra := extra_of(name, command):
            _complain(f"this needs the package {name}", None, install_command(extra))
            return 1
    text = "".join(traceback.format_exception(error))
    click.echo(printable(text), err=True, nl=False)
    if "this is a bug of partc" not in text:  # a runner whose words these are has said so already
        click.echo("\nthis is a bug of partc; please report it with the lines above", err=True)
    return 70


def _show(error: click.ClickException) -> None:
    """Say what click has to say; an argument that it quotes may be anything."""
    shown = io.StringIO()
    error.show(shown)
    click.echo(printable(shown.getvalue()), err=True, nl=False)


def _complain(message: str, where: object, hint: str | None) -> None:
    _say(f"error: {message}")
    if where is not None:
        _say(f"  where: {where}")
    if hint is not None:
        _say(f"  hint: {hint}")


def _say(line: str) -> None:
    """A line on stderr: at a terminal broken between words, elsewhere whole, so that programs can read it.

    It may hold texts of others: devices, servers, files.
    """
    line = printable(line)
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        parts = (
            textwrap.fill(
                part, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
            )
            for part in line.split("\n")
        )
        line = "\n".join(parts)
    head, colon, rest = line.partition("error:")
    click.echo(f"{click.style(colon, fg='red', bold=True)}{rest}" if not head else line, err=True)


def main() -> None:
    """Run the command line of this process, and end it."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: `partc plan ... >&-`
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115
    if (own := sys.__stdout__) is not None:  # it stays referenced, so that its descriptor is not closed
        output = io.BufferedWriter(_StandardOutput(own.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(output, encoding=own.encoding, line_buffering=own.isatty())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # tables have a few characters that old locales lack
    if (answered := complete(partc)) is not None:
        sys.exit(answered)
    quieten_libraries()
    interrupts.arm()
    interrupts.begin()
    code = run(sys.argv[1:])
    if code in (130, 143):
        interrupts.leave(code)
    interrupts.finish()
    try:
        sys.stdout.flush()
    except OSError:
        # Nobody reads standard output any more, or a disk is full: the interpreter's own flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
