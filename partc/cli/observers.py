"""Observers of a pipeline: dumps, prints and progress; passes themselves do none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from partc.cli.checks import check_order, check_settings
from partc.cli.places import check_folder
from partc.cli.progress import Bar, progress_bar
from partc.errors import UserError
from partc.ir.graph import Module
from partc.ir.text import print_module
from partc.pipeline.contract import Context, Pass
from partc.pipeline.manager import Observer, PassRun, run_passes


@dataclass(frozen=True)
class Watch:
    """The outputs of a pipeline that the command line asks for."""

    print_after: tuple[str, ...] = ()
    """Passes after which the IR goes to stderr; `all` stands for each."""
    dump_dir: Path | None = None
    """Folder for the IR after every pass, `03_find-cuts.partc`."""
    timing: bool = False
    """Whether to end with a table of the time of each pass, on stderr."""


def run_watched(load: Callable[[], Module], passes: Sequence[Pass], watch: Watch) -> Module:
    """Apply `passes` to the module that `load` returns, with progress on stderr and the outputs of `watch`.

    What was typed is checked before `load`, which may take minutes.

    Raises:
        UserError: `watch.print_after` names a pass that does not run, `watch.dump_dir` cannot be made, an option of a
            pass is wrong, or a pass refuses the input.
    """
    _check_names(watch.print_after, passes)
    check_settings(passes)
    if watch.dump_dir is not None:
        check_folder(watch.dump_dir, "--dump-dir")
    module = load()
    check_order(module, passes)
    with progress_bar() as bar:
        observers = [*_observers(watch), _next_pass(bar, passes)]
        runs = run_passes(module, passes, Context(bar.update), observers)
    if watch.timing:
        from partc.cli.tables import print_pass_times

        print_pass_times(runs)
    return module


def _check_names(print_after: Sequence[str], passes: Sequence[Pass]) -> None:
    names = [step.name for step in passes]
    for name in print_after:
        if name != "all" and name not in names:
            raise UserError(
                f"--print-after {name}: no such pass runs",
                hint=f"these do: all, {', '.join(dict.fromkeys(names))}",
            )


def _observers(watch: Watch) -> Iterator[Observer]:
    if watch.print_after:
        yield _printer(watch.print_after)
    if watch.dump_dir is not None:
        yield _dumper(watch.dump_dir)


def _printer(names: Sequence[str]) -> Observer:
    def observe(run: PassRun, module: Module) -> None:
        if run.name in names or "all" in names:
            click.echo(f"// after {run.name}", err=True)
            click.echo(print_module(module), err=True, nl=False)

    return observe


def _dumper(folder: Path) -> Observer:
    folder.mkdir(parents=True, exist_ok=True)

    def observe(run: PassRun, module: Module) -> None:
        path = folder / f"{run.index:02}_{run.name}.partc"
        path.write_text(print_module(module), encoding="utf-8")

    return observe


def _next_pass(bar: Bar, passes: Sequence[Pass]) -> Observer:
    """The manager reports a pass when it is done, so each report starts the spinner of the next."""
    names: list[str] = [step.name for step in passes]
    bar.start(names[0] if names else "")

    def observe(run: PassRun, module: Module) -> None:
        following = names[run.index + 1 : run.index + 2]
        bar.start(following[0] if following else "")

    return observe
