"""The devices of a build as processes of this machine, on loopback.

Every runner takes a free port by itself and tells it; then all are told of each other: no port is guessed,
none can be lost to somebody else in between. A runner ends when its standard input does, and is killed by
Linux when the thread that started it ends: so nothing is left behind, however this process goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from partc.errors import PartcError, RunError
from partc.format.role import load_role, source_role
from partc.runtime.client.client import Client
from partc.runtime.core.liveness import LEAST_PATIENCE_S
from partc.runtime.cores import shared_out
from partc.runtime.shell.process import LOOK_S, RunnerProcess, Waiting, failure_of

_STOP_S = 2.0
_LAST_WORDS_S = 0.5
_DEATH_S = 0.05


def launch_local(
    build_dir: Path,
    *,
    insecure: bool = False,
    env: Mapping[str, str] | None = None,
    listen: Mapping[str, str] | None = None,
    floor_s: float = LEAST_PATIENCE_S,
    ready_s: float = 300.0,
    measure: bool = False,
    pin: bool = False,
) -> LocalRing:
    """Start a runner for every device of a build and wait until the ring stands.

    Args:
        build_dir: what `partc compile` wrote.
        insecure: neither encrypt nor authenticate.
        env: variables for the runners, over this process's.
        listen: device → HOST:PORT; the others take a free port of 127.0.0.1.
        floor_s: the shortest time without progress after which a device counts as gone, seconds.
        ready_s: how long loading may take, seconds.
        measure: start devices that measure (`partc profile`), each for itself.
        pin: keep each runner on cores of its own, if there are as many as all have threads. It is faster where nothing
            else runs, and slower where something does, since a runner cannot make way.

    Raises:
        BundleError: not a build.
        RunError: a runner ended, with what it said; or the ring did not come to stand in time.
    """
    ring = LocalRing(build_dir, insecure, {**os.environ, **(env or {})}, floor_s, measure, pin)
    try:
        ring.start(listen or {}, ready_s)
    except BaseException:
        ring.close()
        raise
    return ring


class LocalRing:
    """Runner processes on this machine; a context manager that ends them."""

    def __init__(
        self,
        build_dir: Path,
        insecure: bool,
        env: Mapping[str, str],
        floor_s: float,
        measure: bool = False,
        pin: bool = False,
    ) -> None:
        """Nothing is started yet; use `launch_local`."""
        self._build = build_dir
        self._insecure = insecure
        self._env = dict(env)
        self._floor_s = floor_s
        self._measure = measure
        self._pin = pin
        self._role = source_role(build_dir)
        self._processes: dict[str, RunnerProcess] = {}
        self._started = threading.Event()
        self._closing = threading.Event()
        self._release = threading.Event()
        self._keeper: threading.Thread | None = None
        self._spawn_error: BaseException | None = None
        self.addresses: dict[str, str] = {}
        """Device → HOST:PORT."""

    @property
    def pids(self) -> dict[str, int]:
        """Device → process id."""
        return {name: process.popen.pid for name, process in self._processes.items()}

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
        """A connection to the ring; errors tell what a runner said that ended."""
        return Client.connect(
            self._build, self.source, insecure=self._insecure, floor_s=self._floor_s, explain=self.explain
        )

    def start(self, listen: Mapping[str, str], ready_s: float) -> None:
        """Start the processes and wait for the ring; raises as `launch_local`."""
        end = time.monotonic() + ready_s
        unknown = sorted(set(listen) - set(self._role.ring))
        if unknown:
            raise RunError(f"{unknown[0]!r} is not in the ring", hint=", ".join(self._role.ring))
        # Linux ties the life of a child to the thread that started it, so that thread lives as long as the
        # ring.
        self._keeper = threading.Thread(target=self._keep, args=(dict(listen),), daemon=True)
        self._keeper.start()
        self._started.wait()
        if self._spawn_error is not None:
            raise self._spawn_error
        self.addresses = {
            name: str(told["listening"]) for name, told in self._await_lines("listening", end).items()
        }
        line = f"{json.dumps({'peers': self.addresses})}\n".encode()
        for process in self._processes.values():
            self._tell(process, line)
        self._await_lines("ready", end)

    def failure(self) -> PartcError | None:
        """The error of a runner that ended by a fault; None while all are well, or were killed from outside."""
        for name, process in self._processes.items():
            code = process.popen.poll()
            if code is not None and code > 0:
                return failure_of(name, code, process)
        return None

    def killed(self) -> RunError | None:
        """About a runner that somebody killed; None while there is none."""
        for name, process in self._processes.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                if (code := process.popen.wait(_DEATH_S)) < 0:
                    hint = "see whether the memory of this machine is enough, and start again"
                    message = f"the runner of {name} ended (signal {-code})"
                    return RunError(message, where=name, hint=hint, cause="lost-peer")
        return None

    def explain(self, error: PartcError) -> PartcError:
        """The error of a runner that ended by a fault, if `error` follows from that; else `error`."""
        process = self._processes.get(error.where or "")
        if process is not None and isinstance(error, RunError) and error.cause == "lost-peer":
            # It may still be writing its last words.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(_LAST_WORDS_S)
        return self.failure() or error

    def close(self, *, at_once: bool = False) -> None:
        """End all runners; after this none is left.

        Args:
            at_once: do not wait for them to end by themselves; after a failure one of them may never do so.
        """
        self._closing.set()
        if self._keeper is not None and self._keeper.is_alive():
            self._started.wait()  # where `start` was interrupted, that thread may be about to add a process
        try:
            if not at_once:
                self._ask_to_end()
        finally:
            for process in self._processes.values():
                process.popen.kill()
                process.popen.wait()
                process.close_streams()
                process.stderr.close()
            self._processes.clear()
            self._release.set()
        if self._keeper is not None and self._keeper.is_alive():
            self._keeper.join()

    def _ask_to_end(self) -> None:
        """Give all runners the time to end by themselves."""
        for process in self._processes.values():
            process.close_streams()
        end = time.monotonic() + _STOP_S
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.0, end - time.monotonic()))

    def _keep(self, listen: Mapping[str, str]) -> None:
        try:
            cores = self._cores() if self._pin else None
            for name in self._role.ring:
                if self._closing.is_set():
                    break
                self._processes[name] = self._spawn(name, listen.get(name, "127.0.0.1:0"))
                if cores:
                    # Before it has other threads, which then may run there as well and nowhere else.
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(self._processes[name].popen.pid, cores.pop(0))
        except BaseException as error:
            self._spawn_error = error
        self._started.set()
        self._release.wait()

    def _cores(self) -> list[set[int]] | None:
        """Where each runner may compute, if there are cores enough for all."""
        roles = (load_role(self._build / "devices" / name) for name in self._role.ring)
        return shared_out([role.engine.threads for role in roles])

    def _spawn(self, name: str, listen: str) -> RunnerProcess:
        # -P: what lies in the folder one happens to be in, a checkpoint perhaps, is no code.
        command = [sys.executable, "-P", "-m", "partc.runtime", "--stdio", "--listen", listen]
        command += ["--bundle", str(self._build / "devices" / name), "--patience", str(self._floor_s)]
        command += ["--insecure"] if self._insecure else []
        command += ["--measure"] if self._measure else []
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, (root, self._env.get("PYTHONPATH"))))
        stderr = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**self._env, "PYTHONPATH": path},
        )
        return RunnerProcess(popen, stderr)

    def _await_lines(self, key: str, end: float) -> dict[str, Any]:
        """Device → the line with `key` that it told."""
        found: dict[str, Any] = {}
        with selectors.DefaultSelector() as selector:
            for name, process in self._processes.items():
                assert process.popen.stdout is not None
                selector.register(process.popen.stdout, selectors.EVENT_READ, name)
            waiting = Waiting()
            while len(found) < len(self._processes):
                ready = selector.select(min(LOOK_S, max(0.0, end - time.monotonic())))
                if not ready:
                    waiting.look({n: p for n, p in self._processes.items() if n not in found}, end)
                for item, _ in ready:
                    told = self._processes[item.data].read()
                    if told is None:
                        raise self._ended(item.data)
                    for line in told:
                        if key in line:
                            found[item.data] = line
        return found

    def _ended(self, name: str) -> PartcError:
        process = self._processes[name]
        code = process.popen.wait()
        return self.failure() or failure_of(name, code, process)

    @staticmethod
    def _tell(process: RunnerProcess, line: bytes) -> None:
        assert process.popen.stdin is not None
        try:
            process.popen.stdin.write(line)
            process.popen.stdin.flush()
        except BrokenPipeError:
            return  # it has ended, which its standard output tells next
