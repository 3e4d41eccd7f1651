"""A solver in a process of its own: it may crash, hang or write nonsense, which is a `SolverError`.

A mistake of ours in that process is a bug all the same: it ends with code `BUG` and its traceback.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from partc.errors import InternalError

SOLVER = (sys.executable, "-P", "-m", "partc.planner.baselines.assignment_solver")
"""The command; -P: the folder that the user happens to be in is no place to import from."""

_GRACE_S = 5.0
"""Time beyond the solver's limit: to start, to prepare, to write."""


T = TypeVar("T")

BUG = 70
"""Exit code of the process where our code failed, and not the solver."""


class Answer(msgspec.Struct, frozen=True):
    """The end of a search by the solver."""

    assignment: list[str] | None
    """The device of every sub-module. None: none was found; where `proven`, there is none."""
    proven: bool
    """Whether the assignment is an optimum of the programme."""
    bound_s: float | None
    """No assignment has a lower latency (throughput: largest busy time) by `evaluate`; None: not known."""
    status: str = ""
    """The end of the solver in its own words."""


class SolverError(Exception):
    """The solver gave no answer; the message says why, in words that follow `the solver`."""


def ask_solver(request: Mapping[str, object], limit_s: float, command: Sequence[str] = SOLVER) -> Answer:
    """The answer to a request about an assignment, as `ask` has it."""
    return ask(request, limit_s, command, Answer)


def ask(request: Mapping[str, object], limit_s: float, command: Sequence[str], kind: type[T]) -> T:
    """The answer to a request, a struct of this kind; the process is killed a little after the limit.

    Raises:
        SolverError: the process could not be started, was killed, failed, or wrote no answer.
        InternalError: our part of the process has a bug.
    """
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=limit_s + _GRACE_S,
            # One thread: those that nobody uses take addresses, which the solver's own limit counts.
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SolverError(f"did not end within {limit_s:.3g} s and was stopped") from error
    except OSError as error:
        raise SolverError(f"cannot be started: {error.strerror}") from error
    if done.returncode == BUG:
        said = done.stderr.decode(errors="replace").strip()
        raise InternalError(f"the process of the solver failed:\n{said}")
    if done.returncode:
        raise SolverError(_failure(done.returncode, done.stderr))
    return _read(done.stdout, kind)


def _failure(code: int, stderr: bytes) -> str:
    if code < 0:
        return f"was killed ({signal.Signals(-code).name})"
    lines = stderr.decode(errors="replace").strip().splitlines()
    return f"failed: {lines[-1][:200] if lines else f'exit code {code}'}"


def _read(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise SolverError("wrote an answer of the wrong form") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise SolverError("wrote no answer that can be read") from error
