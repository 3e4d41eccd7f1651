"""One runner as a process of this machine: its lines, its last words, and the patience with it while it loads."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from partc.errors import InternalError, PartcError, RunError
from partc.printable import note, printable

if TYPE_CHECKING:
    from partc.format.message_parts import Problem

LOOK_S = 1.0
"""The time between two looks after runners that load."""
_FIRST_WORD_S = 10.0
_STOPPED_S = 10.0
_LINGER_S = 5.0
_TAIL_BYTES = 4000
_MOST_FORWARDED_BYTES = 1 << 20
_BUG_EXIT_CODE = 70


@dataclass(slots=True)
class RunnerProcess:
    """One runner."""

    popen: subprocess.Popen[bytes]
    stderr: IO[bytes]
    pending: bytes = b""
    last_words: Problem | None = None
    """Its reason to end, once it has told it."""
    forwards: bool = False
    """Whether its standard error goes on to that of this process."""
    _forwarded: int = 0
    """Bytes of it that have."""
    _lingered: bool = False
    """Whether it was killed, since it went on without an output."""

    @property
    def output(self) -> IO[bytes]:
        """Its standard output."""
        assert self.popen.stdout is not None
        return self.popen.stdout

    def tell(self, line: bytes) -> None:
        """Write to its standard input; where it has ended, its output tells so next."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(line)
            self.popen.stdin.flush()

    def read(self) -> list[dict[str, Any]] | None:
        """The lines that it told; None when it has ended."""
        came = os.read(self.output.fileno(), 65536)
        *lines, self.pending = (self.pending + came).split(b"\n")
        for line in lines:
            if b'"error"' in line:  # as `last_words` writes it, which brings numpy along
                from partc.runtime.shell.last_words import read_last_words

                self.last_words = read_last_words(line) or self.last_words
        return [told for line in lines if (told := _told(line)) is not None] if came else None

    def exit_code(self) -> int:
        """The exit code of one whose output has ended, which is its end: one that goes on after it is killed."""
        try:
            return self.popen.wait(_LINGER_S)
        except subprocess.TimeoutExpired:
            self._lingered = True
            self.popen.kill()
            return self.popen.wait()

    def failure(self, name: str) -> PartcError:
        """The reason why the runner of this device ended, which it has, as an error of this process."""
        code = self.exit_code()
        if self._lingered:
            message = f"the runner of {name} closed its standard output and did not end: it was killed"
            return RunError(message, where=name, cause="lost-peer")
        if code < 0:
            hint = "see whether the memory of this machine is enough, and start again"
            message = f"the runner of {name} ended (signal {-code})"
            return RunError(message, where=name, hint=hint, cause="lost-peer")
        self.end()
        told = self.last_words
        if code == _BUG_EXIT_CODE:
            return InternalError(f"the runner of {name} failed:\n{self.tail()}")
        if told is None:
            last = self.tail().rpartition("\n")[2]
            return RunError(f"the runner of {name} ended with exit code {code}: {last}", where=name)
        message = f"the runner of {name} ended: {told.message}"
        return RunError(message, where=told.where, hint=told.hint, cause=told.cause)

    def end(self) -> None:
        """Read what a process that has ended still told."""
        while self.read() is not None:
            pass

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it (SIGSTOP, Ctrl-Z); unknown on other systems than Linux."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False

    def tail(self) -> str:
        """The last that it wrote to standard error."""
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - _TAIL_BYTES))
        return self.stderr.read().decode(errors="replace").strip()

    def forward(self) -> None:
        """Write the lines on its standard error that are new to that of this process, if they are wanted there."""
        if not self.forwards:
            return
        # The position in the file is the runner's as well, which writes there.
        came = os.pread(self.stderr.fileno(), _MOST_FORWARDED_BYTES, self._forwarded)
        lines = came[: came.rfind(b"\n") + 1]
        self._forwarded += len(lines)
        if lines:
            sys.stderr.write(printable(lines.decode(errors="replace")))
            sys.stderr.flush()

    def close_streams(self) -> None:
        """Close what it is told by and what it tells by; it ends then by itself."""
        for stream in filter(None, (self.popen.stdin, self.popen.stdout)):
            _close_quietly(stream)

    def close(self) -> None:
        """Close all that belongs to a process that has ended."""
        self.close_streams()
        self.stderr.close()


class Waiting:
    """Patience with runners that load: says from time to time whom it waits for, and knows when it is in vain."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next_word = _FIRST_WORD_S
        self._stopped: dict[str, float] = {}

    def look(self, missing: Mapping[str, RunnerProcess], end: float) -> None:
        """Look after the runners that have not told what is waited for.

        Raises:
            RunError: the time is over, or one of them is stopped.
        """
        now, names = time.monotonic(), ", ".join(missing)
        if now >= end:
            raise RunError("the runner did not get ready in time", where=names, cause="stalled")
        for name, process in missing.items():
            since = self._stopped.setdefault(name, now) if process.is_stopped else now
            if not process.is_stopped:
                self._stopped.pop(name, None)
            if now - since >= _STOPPED_S:
                message = f"the runner of {name} is stopped"
                hint = f"let it go on: kill -CONT {process.popen.pid}"
                raise RunError(message, where=name, hint=hint, cause="stalled")
        if now - self._began >= self._next_word:
            note(f"waiting for {names}, {now - self._began:.0f} s")
            self._next_word *= 2


def _told(line: bytes) -> dict[str, Any] | None:
    """The object that a line holds; None for a line of something else that writes to standard output."""
    try:
        told = json.loads(line.decode(errors="replace"))
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _close_quietly(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        return
