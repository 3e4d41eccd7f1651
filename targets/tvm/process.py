"""Tools of other makers as processes, which end in a given time and leave none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """The end of a tool."""

    problem: str
    """Why it is of no use, with what it printed; empty if all is well."""
    text: str
    """Its whole output."""

    @property
    def first_line(self) -> str:
        """The first line of its output; empty where there was none."""
        return next(iter(self.text.splitlines()), "")


def run_tool(command: Sequence[str], seconds: float) -> Result:
    """Run a command to its end, or end it, and all that it started, after so many seconds or with this process."""
    try:
        # A group of its own: a compiler is often a script, and ending that alone leaves what it started.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return Result(f"cannot be run ({getattr(error, 'strerror', None) or error})", "")
    try:
        text, _ = process.communicate(timeout=seconds)
    except BaseException as error:
        _end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            return Result(f"did not end within {seconds:g} s, and was ended", "")
        raise
    text = text.strip()
    failed = process.returncode != 0
    return Result(text or f"exit status {process.returncode}, and it printed nothing" if failed else "", text)


def _end(process: subprocess.Popen[str]) -> None:
    """With its group: what a tool started may outlive it, and hold its output open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
