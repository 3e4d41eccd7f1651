"""A spinner and bars on stderr for long work; silent where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_IN_BYTES = ("write ",)
"""First words of work that counts bytes; all other work counts items."""


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
        self._step = self._display.add_task(step, total=None, amount="") if step else None

    def update(self, what: str, done: int, total: int) -> None:
        """`done` of `total` bytes or items; the signature of `partc.pipeline.contract.Progress`."""
        if self._display is None:
            return
        if what not in self._work:
            self._work[what] = self._display.add_task(f"  {what}", total=total, amount="")
        task = self._work[what]
        self._display.update(task, completed=done, total=total)
        if what.startswith(_IN_BYTES):
            speed = next(shown.speed for shown in self._display.tasks if shown.id == task)
            self._display.update(task, amount=amount(done, total, speed))


def amount(done: int, total: int, bytes_per_s: float | None) -> str:
    """Progress of work in bytes, its rate and the time left: `1.2 GB of 3.8 GB, 210.4 MB/s, 12 s left`."""
    from rich.filesize import decimal

    text = f"{decimal(done)} of {decimal(total)}"
    if not bytes_per_s:
        return text
    return f"{text}, {decimal(int(bytes_per_s))}/s, {_duration((total - done) / bytes_per_s)} left"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


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
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        yield Bar(display)
