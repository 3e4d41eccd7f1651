"""A thread that makes the engine, and loads and releases sub-modules while the device goes on working."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import assert_never

from partc.errors import PartcError, RunError
from partc.format.files import verify_file, verify_files
from partc.format.role import Role
from partc.runtime.core.commands import Load, Release
from partc.runtime.core.events import Loaded, LoadFailed
from partc.runtime.engines.contract import Engine, make_engine, submodule_named
from partc.runtime.engines.huge_pages import share_heap

Outcome = Loaded | LoadFailed


class Loader:
    """Does one job after the other; `results` has what came of them, and `told` is readable then.

    Between jobs it settles the engine.
    Files are held against the build before they are used for the first time, and no sooner: a device may have copies of
    large parts of the model that it never needs.
    """

    engine: Engine
    """Made by the first job, together with the sub-modules that the placement in force runs."""

    def __init__(self, role: Role, folder: Path, *, is_checked: bool) -> None:
        """Nothing is done before `begin`; `is_checked`: the files need not be held against the build any more."""
        self._role, self._folder = role, folder
        self._verified = set(role.files) if is_checked else set()
        self._jobs: SimpleQueue[Load | Release | None] = SimpleQueue()
        self._results: SimpleQueue[Outcome | BaseException] = SimpleQueue()
        self.told, self._teller = socket.socketpair()
        self._thread = threading.Thread(target=self._work, name="loader", daemon=True)
        self._asked = self._ended = 0

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way or waits. None can be interrupted."""
        return self._asked != self._ended

    def begin(self) -> None:
        """Make the engine and load what the placement in force runs; `Loaded()` tells of it."""
        self._asked += 1
        share_heap()
        self._thread.start()

    def add(self, job: Load | Release) -> None:
        """Do this after all that was asked for before."""
        self._asked += 1
        self._jobs.put(job)

    def results(self) -> Iterator[Outcome]:
        """Outcomes of the jobs that have ended since the last call.

        Raises:
            BaseException: of `begin`, or of a bug.
        """
        self.told.recv(4096)
        with suppress(Empty):
            while True:
                found = self._results.get_nowait()
                if isinstance(found, BaseException):
                    raise found
                yield found

    def end(self) -> None:
        """End the thread, after the jobs that it has."""
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self.told.close()
        self._teller.close()

    def _work(self) -> None:
        try:
            self._begin()
            self._ended += 1
            self._tell(Loaded())
            while (job := self._next()) is not None:
                self._do(job)
                self._ended += 1
        except MemoryError:
            self._tell(self._no_memory())
        except BaseException as error:
            self._tell(error)

    def _next(self) -> Load | Release | None:
        """While there is no job, weights are put where steps read them fastest."""
        while self._jobs.empty() and self.engine.settle():
            pass
        return self._jobs.get()

    def _tell(self, result: Outcome | BaseException) -> None:
        self._results.put(result)
        self._teller.send(b"\0")

    def _begin(self) -> None:
        running = self._role.running
        if not self._verified:
            idle = self._files_of(name for name in self._role.submodules if name not in running)
            later = idle - self._files_of(running)
            verify_files(self._folder, self._role.files, later)
            self._verified = set(self._role.files) - later
        self.engine = make_engine(self._role, self._folder)
        for name in running:
            self.engine.load(name)
        # All that is loaded now stays: the collector need not look through it again in the middle of a step.
        gc.collect()
        gc.freeze()

    def _do(self, job: Load | Release) -> None:
        match job:
            case Load(epoch, submodules):
                self._tell(self._loaded(epoch, submodules))
            case Release(submodules):
                for name in submodules:
                    self.engine.release(name)
            case _:
                assert_never(job)

    def _loaded(self, epoch: int, submodules: Sequence[str]) -> Outcome:
        try:
            for file in sorted(self._files_of(submodules) - self._verified):
                verify_file(self._folder, file, self._role.files[file])
                self._verified.add(file)
            for name in submodules:
                self.engine.load(name)
        except (PartcError, MemoryError) as error:
            for name in submodules:
                self.engine.release(name)  # half of them are of no use, and take their memory
            if isinstance(error, MemoryError):
                error = self._no_memory()
            return LoadFailed(epoch, error)
        return Loaded(epoch)

    def _no_memory(self) -> RunError:
        hint = "end other programs, or compile again: with less `memory` for this device, or a smaller max_sequence"
        return RunError("there is not enough memory", where=self._role.device, hint=hint)

    def _files_of(self, submodules: Iterable[str]) -> set[str]:
        held = (submodule_named(name, self._role) for name in submodules)
        return {file for module in held for file in (module.file, *module.weights)}
