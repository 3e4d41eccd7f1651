"""Work of the engine, in the order of the commands; loading alone has a thread of its own."""

from __future__ import annotations

import time
from collections import deque
from typing import assert_never

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.runtime.core.commands import Compute, Draw, Load, ReadRows, Release, Reset, WriteRows
from partc.runtime.core.device.sampling import drawn
from partc.runtime.core.events import Computed, ComputeFailed, RowsRead
from partc.runtime.engines.contract import Engine
from partc.runtime.shell.loader import Loader

Task = Compute | Draw | Reset | ReadRows | WriteRows | Release | Load
Answer = Computed | ComputeFailed | RowsRead


class Work:
    """Commands for the engine, first in first out: rows are read after the step that was commanded before.

    A `Load` goes to the loader at once, beside what is computed. A `Release` goes there when its turn has come, so that
    nothing that was commanded before still needs the sub-module; a `Load` that follows it waits behind it.
    """

    def __init__(self, loader: Loader) -> None:
        """There is nothing to do yet; the loader makes the engine before the first command needs it."""
        self._loader = loader
        self._tasks: deque[Task] = deque()

    def __len__(self) -> int:
        """Commands that wait."""
        return len(self._tasks)

    @property
    def computes_next(self) -> bool:
        """Whether a sub-module is next, which takes its time."""
        return bool(self._tasks) and isinstance(self._tasks[0], Compute)

    def add(self, task: Task) -> None:
        """Do this after what was commanded before."""
        if isinstance(task, Load) and not any(isinstance(other, Release) for other in self._tasks):
            self._loader.add(task)
        else:
            self._tasks.append(task)

    def do_next(self) -> Answer | None:
        """Do what is next; the event that follows, if one does."""
        task = self._tasks.popleft()
        if isinstance(task, Load | Release):
            self._loader.add(task)
            return None
        return done(task, self._loader.engine)


def done(task: Compute | Draw | Reset | ReadRows | WriteRows, engine: Engine) -> Answer | None:
    """Have the engine do it; the event that follows.

    Raises:
        RunError: rows that are not there were asked for.
    """
    match task:
        case Compute() | Draw():
            try:
                return _drawn(task) if isinstance(task, Draw) else _computed(task, engine)
            except RunError as error:
                return ComputeFailed(error)
        case Reset(slot, dims):
            engine.reset(slot, dims)
        case ReadRows(submodule, slot, state, row, begin, end):
            return RowsRead(engine.read_rows(submodule, slot, state, row, begin, end))
        case WriteRows(submodule, slot, state, row, begin, rows):
            engine.write_rows(submodule, slot, state, row, begin, rows)
        case _:
            assert_never(task)
    return None


def _computed(work: Compute, engine: Engine) -> Computed:
    if work.resets:
        engine.reset(work.slot, work.dims)
    began = time.monotonic()
    made = computed(work, engine)
    return Computed(made, time.monotonic() - began)


def computed(work: Compute, engine: Engine) -> list[Array]:
    """The outputs of a sub-module, for one request or for several that share the step."""
    if work.others:
        return engine.run_shared(work.submodule, (work.slot, *work.others), work.inputs, work.dims)
    return engine.run(work.submodule, work.slot, work.inputs, work.dims)


def _drawn(work: Draw) -> Computed:
    began = time.monotonic()
    values = drawn(work.logits, work.sampling, work.positions, work.others)
    return Computed(values, time.monotonic() - began)
