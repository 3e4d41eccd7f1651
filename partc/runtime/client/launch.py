"""The devices of a build as processes of this machine, on loopback.

Every runner takes a free port by itself and tells it; then all are told of each other: no port is guessed,
none can be lost to somebody else in between. A runner that dies is started again and listens where it did before
(`keeper.py`). It ends when its standard input does, and is killed by Linux when the thread that started it ends: so
nothing is left behind, however this process goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from partc.errors import PartcError, RunError
from partc.format.names import device_folders
from partc.runtime.client.keeper import Death, Keeper
from partc.runtime.client.runners import Runner, choose_runner, runner_kind, start_runner
from partc.runtime.core.liveness import LEAST_PATIENCE_S, LINGER_S, REJOIN_S
from partc.runtime.processor import shared_out
from partc.runtime.shell.log import LogSettings
from partc.runtime.shell.process import LOOK_S, RunnerProcess, Waiting

if TYPE_CHECKING:
    from partc.format.role import Role
    from partc.runtime.client.client import Client
    from partc.runtime.client.text import Tokenizer

READY_S = 300.0
"""The time that loading may take."""

_STOP_S = 2.0
_LAST_WORDS_S = 0.5
_DEATH_S = 0.05


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Options of the runners of a local ring."""

    insecure: bool = False
    """Neither encrypt nor authenticate."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for the runners, over this process's."""
    runners: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Device → the command that starts its runner, without options; `runner` says what runs the others."""
    listen: Mapping[str, str] = field(default_factory=dict)
    """Device → HOST:PORT; the others take a free port of 127.0.0.1."""
    advertise: Mapping[str, str] = field(default_factory=dict)
    """Device → HOST:PORT at which the others reach it, where that is not where it listens."""
    floor_s: float = LEAST_PATIENCE_S
    """The shortest time without progress after which a device counts as gone, seconds."""
    restart: bool = True
    """Start runners again that die."""
    rejoin_s: float | None = None
    """The time that requests wait for a device that is lost, seconds; None: none if nothing is started again."""
    linger_s: float = LINGER_S
    """The time that a request goes on whose client is gone, seconds."""
    log: LogSettings | None = None
    """The log of all runners, which goes to standard error of this process; None: there is none."""
    measure: bool = False
    """Start devices that measure (`partc profile`), each for itself; the runner in Python alone does so."""
    runner: Runner | None = None
    """The kind of all runners; None: native where a device's folder has one for this machine."""
    pin: bool = False
    """Keep each runner on cores of its own, if there are as many as all have threads. It is faster where nothing else
    runs, and slower where something does, since a runner cannot make way."""


def launch_local(
    build_dir: Path, settings: LocalSettings | None = None, *, ready_s: float = READY_S, **options: Any
) -> LocalRing:
    """Start a runner for every device of a build and wait until the ring stands.

    Args:
        build_dir: what `partc compile` wrote.
        settings: how they are started.
        ready_s: how long loading may take, seconds.
        options: fields of `LocalSettings`, instead of `settings`.

    Raises:
        BundleError: not a build.
        RunError: a runner ended, with what it said; or the ring did not come to stand in time.
    """
    from partc.format.role import source_role

    source_role(build_dir)
    ring = start_local(build_dir, settings or LocalSettings(**options))
    with contextlib.ExitStack() as undone:
        undone.callback(ring.close)
        ring.wait(ready_s)
        undone.pop_all()
    return ring


def start_local(build_dir: Path, settings: LocalSettings) -> LocalRing:
    """Start a runner for every device of a build: they load from now on, while this process does something else.

    The ring is to be waited for (`LocalRing.wait`) before it is used. What runners cannot know is not looked at here: a
    folder without a device is a ring of none.

    Raises:
        BundleError: not a build, where runners are to be kept on cores of their own.
        RunError: a runner cannot be started, or there is no such device.
    """
    ring = LocalRing(build_dir, settings)
    with contextlib.ExitStack() as undone:
        undone.callback(ring.close)
        ring.start()
        undone.pop_all()
    return ring


class LocalRing:
    """Runner processes on this machine; a context manager that ends them."""

    def __init__(self, build_dir: Path, settings: LocalSettings) -> None:
        """Nothing is started yet; use `launch_local` or `start_local`."""
        self._build, self._settings = build_dir, settings
        self._devices = [folder.name for folder in device_folders(build_dir)]
        self._listen = dict(settings.listen)
        self._cores: Mapping[str, set[int]] = {}
        self._programs: Mapping[str, Sequence[str]] = {}
        self._restart = settings.restart and not settings.measure
        self._keeper = Keeper(self._devices, self._spawn, restart=self._restart)
        self._forwards = settings.log is not None and not settings.measure
        self._tokenizer: Tokenizer | None = None
        self._told: dict[str, dict[str, Any]] = {name: {} for name in self._devices}
        """Device → all that its runner has told."""
        self.addresses: dict[str, str] = {}
        """Device → HOST:PORT."""
        self.runners: dict[str, Runner] = {}
        """Device → what runs it."""

    @cached_property
    def _role(self) -> Role:
        """That of the source."""
        from partc.format.role import source_role

        return source_role(self._build)

    @property
    def pids(self) -> dict[str, int]:
        """Device → process id."""
        return {name: process.popen.pid for name, process in self._keeper.processes.items()}

    @property
    def source(self) -> str:
        """HOST:PORT of the device where requests enter."""
        return self.addresses[self._role.source]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=error is not None)

    def client(self) -> Client:
        """A connection to the ring; errors tell what a runner said that ended.

        It does not wait for a source that is out of reach: there are no gaps within a machine, so it has ended.
        """
        from partc.runtime.client.client import Client

        return Client.connect(
            self._build,
            self.source,
            insecure=self._settings.insecure,
            floor_s=self._settings.floor_s,
            linger_s=0.0,
            explain=self.explain,
            tokenizer=self._tokenizer,
        )

    def start(self) -> None:
        """Start the processes; raises as `start_local`."""
        devices, settings = self._devices, self._settings
        unknown = sorted({*settings.listen, *settings.advertise, *settings.runners} - set(devices))
        if unknown:
            raise RunError(f"the build has no device {unknown[0]!r}", hint=", ".join(devices))
        self._cores = self._shared_cores() if self._settings.pin else {}
        self._programs = {name: self._program(name) for name in devices}
        self.runners = {name: runner_kind(command) for name, command in self._programs.items()}
        self._keeper.start()

    def wait(self, ready_s: float = READY_S) -> None:
        """Wait until the ring stands; raises as `launch_local`."""
        end = time.monotonic() + ready_s
        self._await("listening", end)
        self._listen = {name: str(told["listening"]) for name, told in self._told.items()}
        self.addresses = {**self._listen, **self._settings.advertise}
        greeting = f"{json.dumps({'peers': self.addresses})}\n".encode()
        for process in self._keeper.processes.values():
            process.tell(greeting)
        self._await("ready", end)
        self._keeper.watch(greeting)

    def load_client(self) -> None:
        """Have at hand what a client needs, while the runners load: its packages, and the tokenizer if there is one."""
        from partc.runtime.client.client import Client  # noqa: F401
        from partc.runtime.client.text import Tokenizer

        self._tokenizer = Tokenizer(self._build / "devices" / self._role.device)
        with contextlib.suppress(RunError):  # said where somebody has use for it
            self._tokenizer.load()

    def failure(self) -> PartcError | None:
        """The error of a runner that ended by a fault for good; None while all are well, or were killed."""
        return next((death.error for death in self._final_deaths() if death.code > 0), None)

    def given_up(self) -> PartcError | None:
        """The error of a runner that is not started again; None while all run, or will."""
        return next((death.error for death in self._final_deaths()), None)

    def killed(self) -> PartcError | None:
        """About a runner that somebody killed for good; None while there is none."""
        for name in self._keeper.processes:
            self._keeper.last_death(name, _DEATH_S)
        return next((death.error for death in self._final_deaths() if death.code < 0), None)

    def explain(self, error: PartcError) -> PartcError:
        """The error of a runner that ended by a fault, if `error` follows from that; else `error`."""
        if isinstance(error, RunError) and error.cause == "lost-peer" and error.where in self.addresses:
            # It may still be writing its last words.
            death = self._keeper.last_death(error.where, _LAST_WORDS_S)
            if death is not None and (death.code > 0 or (death.is_final and self._restart)):
                return death.error
        return self.failure() or error

    def close(self, *, at_once: bool = False) -> None:
        """End all runners; after this none is left.

        Args:
            at_once: do not wait for them to end by themselves; after a failure one of them may never do so.
        """
        self._keeper.stop()
        processes = self._keeper.processes
        try:
            if not at_once:
                self._ask_to_end()
        finally:
            for process in processes.values():
                process.popen.kill()
                process.popen.wait()
                process.forward()
                process.close()
            processes.clear()
            self._keeper.release()

    def _final_deaths(self) -> list[Death]:
        return [death for death in list(self._keeper.deaths.values()) if death.is_final]

    def _ask_to_end(self) -> None:
        """Give all runners the time to end by themselves."""
        processes = self._keeper.processes.values()
        for process in processes:
            process.close_streams()
        end = time.monotonic() + _STOP_S
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.0, end - time.monotonic()))

    def _shared_cores(self) -> Mapping[str, set[int]]:
        """Device → cores on which its runner may compute, if there are enough for all."""
        from partc.format.role import load_role

        ring = self._role.ring
        roles = [load_role(self._build / "devices" / name) for name in ring]
        cores = shared_out([role.engine.threads for role in roles])
        return dict(zip(ring, cores or (), strict=False))

    def _spawn(self, name: str) -> RunnerProcess:
        """Start the runner of a device; the thread that does so must live as long as the ring."""
        process = start_runner(self._command(name), self._settings.env)
        process.forwards = self._forwards
        if name in self._cores:
            # Before it has other threads, which then may run there as well and nowhere else.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.popen.pid, self._cores[name])
        return process

    def _program(self, name: str) -> Sequence[str]:
        settings = self._settings
        wanted = "python" if settings.measure else settings.runner
        return settings.runners.get(name) or choose_runner(self._build / "devices" / name, wanted)

    def _command(self, name: str) -> list[str]:
        settings = self._settings
        rejoin_s = settings.rejoin_s
        if rejoin_s is None:
            rejoin_s = REJOIN_S if self._restart else 0.0
        command = [*self._programs[name], "--stdio"]
        command += ["--bundle", str(self._build / "devices" / name)]
        command += ["--listen", self._listen.get(name, "127.0.0.1:0"), "--patience", str(settings.floor_s)]
        command += ["--rejoin", str(rejoin_s), "--linger", str(settings.linger_s)]
        command += ["--advertise", settings.advertise[name]] if name in settings.advertise else []
        command += ["--insecure"] if settings.insecure else []
        if settings.log is not None and not settings.measure:
            command += ["--log-level", settings.log.level, "--log-format", settings.log.format]
        command += ["--measure"] if settings.measure else []
        return command

    def _await(self, key: str, end: float) -> None:
        """Read what runners tell until all have told `key`; one may tell several things in a breath."""
        processes = self._keeper.processes
        with selectors.DefaultSelector() as selector:
            for name, process in processes.items():
                selector.register(process.output, selectors.EVENT_READ, name)
            waiting = Waiting()
            while missing := [name for name in processes if key not in self._told[name]]:
                ready = selector.select(min(LOOK_S, max(0.0, end - time.monotonic())))
                if not ready:
                    waiting.look({name: processes[name] for name in missing}, end)
                for item, _ in ready:
                    lines = processes[item.data].read()
                    if lines is None:
                        raise self._ended(item.data)
                    for line in lines:
                        self._told[item.data].update(line)

    def _ended(self, name: str) -> PartcError:
        """The reason why a runner ended before the ring stood; that of another one that ended by a fault goes first."""
        processes = self._keeper.processes
        codes = {other: process.popen.poll() for other, process in processes.items()}
        faulty = [other for other, code in codes.items() if code is not None and code > 0]
        first = faulty[0] if faulty else name
        return processes[first].failure(first)
