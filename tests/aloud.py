"""What a run of the tests tells in continuous integration, where it may be ended early and nobody looks on.

A test that fails is named at once, with the end of its report; every few minutes a line says how many have ended, and
which are running for long.
"""

from __future__ import annotations

import threading
import time

import pytest

EVERY_S = 300
"""Seconds from one line about the run to the next."""
LONG_S = 30
"""Seconds after which a test that runs is worth naming."""


class Aloud:
    """Writes to the terminal of the process that starts the workers, which hears of all of their tests."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._ended = 0
        self._over = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._tell, daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._ended += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}, {report.duration:.1f} s)")
            self._terminal.write_line("\n".join(str(report.longrepr).splitlines()[-12:]))

    def _tell(self) -> None:
        while not self._over.wait(EVERY_S):
            now = time.monotonic()
            times = {name: now - began for name, began in list(self._running.items())}
            long = ", ".join(
                f"{name} for {time_s:.0f} s" for name, time_s in times.items() if time_s > LONG_S
            )
            line = f"after {now - self._began:.0f} s {self._ended} tests have ended"
            self._terminal.write_line(f"\n{line}; running: {long}" if long else f"\n{line}")
