"""The processes that render chat templates, in two lanes: one for all conversations, one for those that take long.

Messages come from anybody, and a template may take long for some of them. So a conversation has `QUICK_S` of the
processor in one of several processes; one that needs more is begun again in the other lane, where it has
`render.SECONDS` and waits for others like it alone. Such ones slow down their own kind alone.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from partc.serve.errors import ApiError

QUICK_S = 0.25
PATIENT_S = 2.0
_QUICK_PROCESSES = 3
_PATIENT_PROCESSES = 1
_MOST_PATIENT = 8
"""Conversations that may be in the second lane, the one that is rendered included."""
_THREADS = 32
"""Conversations that are rendered, or wait for that, at once; more wait without a thread."""


class Worker:
    """A process of `partc.serve.render`; it is started when first needed, and again after it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def ask(self, line: bytes) -> dict[str, Any] | None:
        """Its answer; None where it died over it."""
        process = self._running()
        if process is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except (BrokenPipeError, ValueError):  # it has died, or was closed
            answer = b""
        if not answer.endswith(b"\n"):  # it was killed, perhaps over its answer
            self._end()
            return None
        told: dict[str, Any] = json.loads(answer)
        return told

    def close(self) -> None:
        """End the process, whatever it does."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        self._end()

    def _running(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._process is None and not self._is_closed:
                self._process = _start()
            return self._process

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class _Lane:
    """Some processes, of which a conversation takes one that is free."""

    def __init__(self, processes: int, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._places = threading.BoundedSemaphore(most)
        self._workers = [Worker() for _ in range(processes)]
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._free.put(worker)

    def ask(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer of a process; None where it took too long.

        Raises:
            ApiError: as many wait as may.
        """
        if not self._places.acquire(blocking=False):
            message = "other conversations that take long to render are under way"
            raise ApiError(message, status=503, kind="server_error", code="overloaded")
        try:
            worker = self._free.get()
            try:
                return worker.ask(json.dumps({**given, "seconds": self._seconds}).encode() + b"\n")
            finally:
                self._free.put(worker)
        finally:
            self._places.release()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


class Renderers:
    """Both lanes, and the threads that wait for them."""

    def __init__(self) -> None:
        """No process is started yet."""
        self.threads = ThreadPoolExecutor(_THREADS, "render")
        """For callers that must not wait."""
        self._quick = _Lane(_QUICK_PROCESSES, QUICK_S, _THREADS)
        self._patient = _Lane(_PATIENT_PROCESSES, PATIENT_S, _MOST_PATIENT)

    def ask(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of `partc.serve.render` to a template and its variables. Blocks; any thread may call it.

        Raises:
            ApiError: it takes long, and as many of that kind wait as may.
        """
        for lane in (self._quick, self._patient):
            told = lane.ask(given)
            if told is not None and "slow" not in told:
                return told
        return {"error": "it takes too long, or too much memory"}

    def close(self) -> None:
        """End all processes."""
        self._quick.close()
        self._patient.close()
        self.threads.shutdown(wait=False, cancel_futures=True)


def _start() -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "partc.serve.render"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
