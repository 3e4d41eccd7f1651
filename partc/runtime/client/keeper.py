"""The thread that starts the runners of a local ring, and starts those again that die.

Linux ties the life of a child to the thread that started it, so one thread starts all of them, and lives as long as the
ring.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partc.errors import Cause, PartcError, RunError
from partc.printable import note
from partc.runtime.shell.process import RunnerProcess

MOST_DEATHS = 5
"""A runner that dies so many times within `WITHIN_S` is left dead."""
WITHIN_S = 60.0

_FORWARD_S = 0.25
"""Time between two looks at the logs of runners."""

Spawn = Callable[[str], RunnerProcess]
"""Starts the runner of a device."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a runner that nobody asked to end."""

    code: int
    """Exit code; below 0 the number of the signal that killed it."""
    error: PartcError
    """Its last words."""
    is_final: bool
    """Whether it is not started again."""


class Keeper:
    """Runner processes by device; one that is started again takes the place of the one that died."""

    def __init__(self, names: Sequence[str], spawn: Spawn, *, restart: bool) -> None:
        """Nothing is started yet; without `restart` deaths are noted only."""
        self.processes: dict[str, RunnerProcess] = {}
        """Device → its process, the last one."""
        self.deaths: dict[str, Death] = {}
        """Device → its last death."""
        self.died = 0
        """Deaths of all devices so far."""
        self._names, self._spawn, self._restart = names, spawn, restart
        self._times: dict[str, list[float]] = {}
        """Device → the times at which it died lately."""
        self._died = threading.Condition()
        self._greeting = b""
        self._error: BaseException | None = None
        self._started, self._watches = threading.Event(), threading.Event()
        self._ending, self._ended = threading.Event(), threading.Event()
        self._released = threading.Event()
        self._woken, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start all processes; raises what starting one of them raised."""
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def watch(self, greeting: bytes) -> None:
        """Look after the processes from now on; one that is started again is told `greeting`."""
        self._greeting = greeting
        self._watches.set()

    def last_death(self, name: str, patience_s: float) -> Death | None:
        """The last death of a device, for which there is so much time to happen."""
        with self._died:
            self._died.wait_for(lambda: name in self.deaths, patience_s)
        return self.deaths.get(name)

    def stop(self) -> None:
        """Start nothing any more; what runs goes on."""
        self._ending.set()
        self._watches.set()
        self._waker.send(b"\0")
        if self.is_alive:
            self._ended.wait()  # it may be about to add a process

    def release(self) -> None:
        """End the thread."""
        self._released.set()
        if self.is_alive:
            self._thread.join()
        self._woken.close()
        self._waker.close()

    def _keep(self) -> None:
        try:
            for name in self._names:
                if self._ending.is_set():
                    break
                self.processes[name] = self._spawn(name)
            self._started.set()
            self._watches.wait()
            self._watch()
        except BaseException as error:
            self._error = error
        self._started.set()
        self._ended.set()
        self._released.wait()

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for name, process in self.processes.items():
                selector.register(process.output, selectors.EVENT_READ, name)
            # Without a log nothing wakes this thread but what runners tell.
            period = _FORWARD_S if any(each.forwards for each in self.processes.values()) else None
            while not self._ending.is_set():
                for item, _ in selector.select(period):
                    if item.data is not None and not self._ending.is_set():
                        self._read(item.data, selector)
                for process in self.processes.values():
                    process.forward()

    def _read(self, name: str, selector: selectors.BaseSelector) -> None:
        """Take what a runner tells; the end of its output is its end."""
        process = self.processes[name]
        if process.read() is not None:
            return
        selector.unregister(process.output)
        if process.exit_code() == 0:
            return  # it was asked to
        death = self._note(name, process)
        first, _, _ = death.error.message.partition("\n")
        what_next = "it stays dead" if death.is_final else "it is started again"
        note(f"{first.rstrip(':')}; {what_next}")
        if not death.is_final:
            process.forward()
            process.close()
            again = self.processes[name] = self._spawn(name)
            again.tell(self._greeting)
            selector.register(again.output, selectors.EVENT_READ, name)

    def _note(self, name: str, process: RunnerProcess) -> Death:
        now = time.monotonic()
        times = [then for then in self._times.get(name, ()) if now - then < WITHIN_S]
        self._times[name] = [*times, now]
        error = process.failure(name)
        too_often = len(times) + 1 >= MOST_DEATHS
        if self._restart and too_often:
            error = _given_up(name, error)
        self.died += 1
        with self._died:
            death = self.deaths[name] = Death(process.exit_code(), error, too_often or not self._restart)
            self._died.notify_all()
        return death


def _given_up(name: str, last: PartcError) -> RunError:
    message = (
        f"the runner of {name} died {MOST_DEATHS} times within {WITHIN_S:g} s; the last time, {last.message}"
    )
    cause: Cause = "bug" if last.exit_code == 70 else "lost-peer"
    return RunError(message, where=last.where or name, hint=last.hint, cause=cause)
