"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from partc.format.logs import FORMATS, LEVELS, NO_LEVEL
from partc.planner.solve import ABOUT, STRATEGIES

if TYPE_CHECKING:
    from partc.runtime.shell.log import LogSettings

_STRATEGIES = "; ".join(f"{name} ({ABOUT[name]})" for name in STRATEGIES)
_F = TypeVar("_F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
"""A path as typed; whether it exists is checked where it is read, so that the message can say what to do."""


def seconds(text: str) -> float:
    """A number of seconds as typed; neither below zero nor endless, which no clock takes.

    Raises:
        click.BadParameter: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise click.BadParameter(f"{text!r} is not a number of seconds, as in 30 or 0.5")
    return value


class Range(click.FloatRange):
    """A range of numbers without NaN, which `click.FloatRange` lets through: no comparison with it is true."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number.

        Raises:
            click.BadParameter: it is none, or outside of the range.
        """
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def example(*lines: str) -> str:
    """The end of a command's help: command lines to copy, kept as they are."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def model_argument(required: bool = True) -> Callable[[_F], _F]:
    """MODEL: model.yaml, a checkpoint folder, an .onnx or .gguf file, or a hub id."""
    return click.argument("model", required=required)


def json_option(what: str) -> Callable[[_F], _F]:
    """--json, for programs."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} as JSON.")


def _patience(text: str) -> float:
    """A number of seconds above zero."""
    value = seconds(text)
    if not value:
        raise click.BadParameter(f"{text!r} is not a number of seconds above 0")
    return value


def runner_options(command: _F) -> _F:
    """--runner and --patience, for commands that start a ring on this machine."""
    command = click.option(
        "--patience",
        type=_patience,
        metavar="SECONDS",
        help="How long a device of local runners may give no sign of progress; one that computes gets 12 times as "
        "long.  [default: 5]",
    )(command)
    return click.option(
        "--runner",
        type=click.Choice(("native", "python")),
        help="The program of local runners.  [default: native, where the folder of the device has one]",
    )(command)


def drafts_option(command: _F) -> _F:
    """--drafts, for commands that generate."""
    return click.option(
        "--drafts/--no-drafts",
        default=True,
        help="Let steps take guessed tokens, which come sooner where they are right; no token depends on them.",
    )(command)


def log_options(default: str) -> Callable[[_F], _F]:
    """--log-level and --log-format: the log of runners that a command starts, and of the server."""

    def wrapped(command: _F) -> _F:
        command = click.option(
            "--log-format", type=click.Choice(FORMATS), default="text", metavar="FORMAT",
            help="Lines of the log: text or json.  [default: text]",
        )(command)  # fmt: skip
        return click.option(
            "--log-level", type=click.Choice((*LEVELS, NO_LEVEL)), default=default, metavar="LEVEL",
            help="Tell on stderr what happens to devices and requests: debug, info, warning, error and above, or none."
            f"  [default: {default}]",
        )(command)  # fmt: skip

    return wrapped


def log_of(level: str, form: str) -> LogSettings | None:
    """The log of local runners by these options; None: there is none."""
    from partc.runtime.shell.log import LogSettings

    return None if level == NO_LEVEL else LogSettings(level, form)


def refuse_runner_options(runner: str | None, patience: float | None) -> None:
    """End with the command's usage where these options are given and no local runner is started."""
    refuse(runner is not None, "--runner is for local runners: leave --connect out")
    refuse(
        patience is not None,
        "--patience is for local runners: with --connect, give it to each partc-runner",
    )


def print_json(data: object) -> None:
    """Data on stdout, for programs; the keys in the order in which they were put."""
    click.echo(json.dumps(data, indent=1, ensure_ascii=False))


def refuse(is_wrong: bool, message: str) -> None:
    """End with the command's usage where its words do not fit together."""
    if is_wrong:
        raise click.UsageError(message, click.get_current_context())


def planning_options(command: _F) -> _F:
    """--strategy and --cut-rule: what belongs to both compile and plan."""
    command = click.option(
        "--cut-rule", default="eq1+frontier", show_default=True, metavar="RULE",
        help="Where the graph may be cut: eq1 (the paper's rule), eq1+frontier, or all.",
    )(command)  # fmt: skip
    return click.option(
        "--strategy", default="optimal", show_default=True, metavar="NAME", type=click.Choice(tuple(STRATEGIES)),
        help=f"How sub-modules are given to devices: {_STRATEGIES}.",
    )(command)  # fmt: skip


def cache_option(
    text: str = "Ignore the cache in ~/.cache/partc: import the model again.",
) -> Callable[[_F], _F]:
    """--no-cache: what belongs to every command that imports a model."""
    return click.option(
        "--no-cache", "cache", is_flag=True, flag_value=False, default=True, help=text
    )  # fmt: skip


def watch_options(command: _F) -> _F:
    """--print-after, --dump-dir and --timing: what belongs to every command that runs passes."""
    command = click.option("--timing", is_flag=True, help="Print the time of each pass to stderr.")(command)
    command = click.option(
        "--dump-dir", type=FILE, metavar="DIR", help="Write the IR after each pass: DIR/03_find-cuts.partc."
    )(command)
    return click.option(
        "--print-after",
        multiple=True,
        metavar="PASS",
        help="Print the IR after PASS (or all) to stderr. Repeatable.",
    )(command)
