"""`partc golden`: what partc makes of your models, kept as text and compared in your CI."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import FILE, example, json_option, print_json

if TYPE_CHECKING:
    from partc.api.pipelines import Following
    from partc.errors import UserError
    from partc.golden.config import Case

_FORMATS = ("text", "markdown", "junit", "github")


@click.group(
    "golden",
    short_help="Keep what is made of your models, and compare.",
    epilog=example(
        "partc golden update golden", "partc golden check golden", "partc golden check golden --format github"
    ),
)
def golden_command() -> None:
    """Keep what partc makes of your models as text (graph, plan, build, tokens), and tell what changed.

    DIR has a golden.yaml: models, devices, and what to keep of them (docs/golden.md).
    """


_dir = click.argument("folder", metavar="[DIR]", type=FILE, default="golden")
_case = click.option("--case", "names", multiple=True, metavar="NAME", help="This case alone. Repeatable.")


@golden_command.command(
    "update",
    short_help="Write what is made now.",
    epilog=example("partc golden update golden --case storyteller"),
)
@_dir
@_case
@json_option("what changed")
def update_command(folder: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Make every case and write its files; look at the difference before you commit it.

    A case that cannot be made keeps none of the others away; the exit code is 1 then.
    """
    from partc.errors import UserError
    from partc.golden.checking import compare_records
    from partc.golden.making import make_record
    from partc.golden.record import is_kept, read_record, write_record
    from partc.golden.reports import change_lines

    told: list[dict[str, object]] = []
    refused: dict[str, UserError] = {}
    for case in _cases(folder, names):
        try:
            with _followed(case) as following:
                record = make_record(case, following)
        except UserError as error:
            refused[case.name] = error
            told.append({"case": case.name, "refused": error.message})
            continue
        changes = compare_records(read_record(case), record) if is_kept(case) else []
        is_new = not case.folder.exists()
        write_record(record, case.folder)
        told.append({"case": case.name, "new": is_new, "changes": [change.to_json() for change in changes]})
        if not as_json:
            click.echo(f"{case.name}: {'new' if is_new else 'written'}, in {case.folder}")
            for line in change_lines(changes):
                click.echo(line)
    if as_json:
        print_json(told)
    if len(refused) == 1:
        raise next(iter(refused.values()))
    if refused:
        each = "; ".join(f"{name}: {error.message}" for name, error in refused.items())
        raise UserError(f"{len(refused)} cases were not written: {each}", where=str(folder))


@golden_command.command(
    "check",
    short_help="Compare with what is kept.",
    epilog=example(
        "partc golden check golden",
        "partc golden check golden --accept 'plan/predicted time/*'",
        "partc golden check golden --format junit > report.xml",
    ),
)
@_dir
@_case
@click.option(
    "--accept",
    multiple=True,
    metavar="PATTERN",
    help="A change that may be: 'plan/*', 'graph/operator added/Mul *' (part/kind/subject). Repeatable.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How the outcome is printed.",
)
@json_option("the outcome")
def check_command(
    folder: Path, names: tuple[str, ...], accept: tuple[str, ...], form: str, as_json: bool
) -> None:
    """Make every case and tell what changed: in the terms of the model, and whose doing it is.

    The exit code is 1 if something changed that --accept does not name, or a case could not be made.
    """
    from partc.errors import UserError
    from partc.golden.checking import Outcome, check_case
    from partc.golden.reports import FORMATS

    outcomes = []
    for case in _cases(folder, names):
        begun = time.monotonic()
        try:
            with _followed(case) as following:
                found = check_case(case, accept, following)
        except UserError as error:
            found = Outcome(case.name, (), error=_sentence(error))
        outcomes.append(replace(found, seconds=time.monotonic() - begun))
    if as_json:
        print_json([outcome.to_json() for outcome in outcomes])
    else:
        click.echo(FORMATS[form](outcomes, str(folder)))
    if not all(outcome.equal for outcome in outcomes):
        click.get_current_context().exit(1)


def _sentence(error: UserError) -> str:
    """An error in one line."""
    where = f" ({error.where})" if error.where else ""
    return f"{error.message}{where}" + (f"; {error.hint}" if error.hint else "")


def _cases(folder: Path, names: Sequence[str]) -> list[Case]:
    from partc.golden.config import load_cases, select

    return select(load_cases(folder), tuple(names), str(folder))


@contextmanager
def _followed(case: Case) -> Iterator[Following]:
    """Progress on stderr."""
    from partc.api.pipelines import Following
    from partc.cli.progress import progress_bar

    with progress_bar() as bar:
        yield Following(lambda name: bar.start(f"{case.name}: {name}" if name else ""), bar.update)
