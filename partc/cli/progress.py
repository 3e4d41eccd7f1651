"""A spinner and bars on stderr for long work; silent where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """The step that runs now, and the work inside it that reports how far it is."""

    def __init__(self, display: Progress | None) -> None:
        self._display = display
        self._step: TaskID | None = None
        self._work: dict[str, TaskID] = {}

    def start(self, step: str) -> None:
        """The step that runs from now on; the one before is done. An empty text ends the last one."""
        if self._display is None:
            return
        for task in (self._step, *self._work.values()):
            if task is not None:
                self._display.remove_task(task)
        self._work = {}
        self._step = self._display.add_task(step, total=None) if step else None

    def update(self, what: str, done: int, total: int) -> None:
        """`done` of `total` bytes or items; the signature of `partc.pipeline.contract.Progress`."""
        if self._display is None:
            return
        if what not in self._work:
            self._work[what] = self._display.add_task(f"  {what}", total=total)
        self._display.update(self._work[what], completed=done, total=total)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A `Bar` that disappears when the work is over."""
    if not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        yield Bar(display)
