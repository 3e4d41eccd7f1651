"""Observers of a pipeline: dumps, prints and progress; passes themselves do none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from partc.api.pipelines import Following, run_pipeline
from partc.api.places import check_folder
from partc.cli.progress import progress_bar
from partc.errors import UserError
from partc.ir.graph import Module
from partc.ir.text import print_module
from partc.pipeline.contract import Pass
from partc.pipeline.manager import Observer, PassRun


@dataclass(frozen=True)
class Watch:
    """The outputs of a pipeline that the command line asks for."""

    print_after: tuple[str, ...] = ()
    """Passes after which the IR goes to stderr; `all` stands for each."""
    dump_dir: Path | None = None
    """Folder for the IR after every pass, `03_find-cuts.partc`."""
    timing: bool = False
    """Whether to end with a table of the time of each pass, on stderr."""


@contextmanager
def followed(watch: Watch, passes: Sequence[Pass]) -> Iterator[Following]:
    """Progress of a pipeline on stderr, and the outputs of `watch`; what was typed is checked at once.

    Raises:
        UserError: `watch.print_after` names a pass that does not run, or `watch.dump_dir` cannot be made.
    """
    _check_names(watch.print_after, passes)
    if watch.dump_dir is not None:
        check_folder(watch.dump_dir, "--dump-dir")
    runs: list[PassRun] = []
    observers = [*_observers(watch), lambda run, module: runs.append(run)]
    with progress_bar() as bar:
        yield Following(bar.start, bar.update, observers=observers)
    if watch.timing:
        from partc.cli.tables import print_pass_times

        print_pass_times(runs)


def run_watched(load: Callable[[], Module], passes: Sequence[Pass], watch: Watch) -> Module:
    """Apply passes to the module that `load` returns; raises as `followed` and `run_pipeline`."""
    with followed(watch, passes) as following:
        return run_pipeline(load, passes, following)


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
