"""What runs a device on this machine: the native runner in the device's folder, or the one of this package."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from partc.errors import RunError
from partc.format.names import RUNNER_FILE
from partc.runtime.engines.ort_library import VARIABLE, library_path
from partc.runtime.shell.process import RunnerProcess

Runner = Literal["native", "python"]
PYTHON_RUNNER = (sys.executable, "-P", "-m", "partc.runtime")
"""-P: what lies in the folder one happens to be in, a checkpoint perhaps, is no code."""
_ANSWER_S = 10.0


def choose_runner(folder: Path, wanted: Runner | None) -> Sequence[str]:
    """The command that runs the device of a folder, without options.

    Args:
        folder: that of the device.
        wanted: which runner; None: the native one, where the folder has one for this machine.

    Raises:
        RunError: a native one is wanted, and there is none.
    """
    program = folder.resolve() / RUNNER_FILE
    if wanted != "python" and _runs_here(program):
        return (str(program),)
    if wanted == "native":
        hint = "make native, compile again, and see that devices.yaml has no `runner: python`"
        raise RunError(f"{folder.name} has no native runner for this machine", where=str(folder), hint=hint)
    return PYTHON_RUNNER


def start_runner(command: Sequence[str], env: Mapping[str, str] | None = None) -> RunnerProcess:
    """Start a runner; `env`: variables over this process's. The thread that does so must live as long as the runner."""
    root = str(Path(__file__).resolve().parents[3])
    variables = {**os.environ, **(env or {})}
    if runner_kind(command) == "native" and (library := library_path()) is not None:
        variables.setdefault(VARIABLE, str(library))
    path = os.pathsep.join(filter(None, (root, variables.get("PYTHONPATH"))))
    stderr = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
    popen = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**variables, "PYTHONPATH": path},
    )
    return RunnerProcess(popen, stderr)


def runner_kind(command: Sequence[str]) -> Runner:
    """The kind of the runner that a command starts, with options or without."""
    return "python" if tuple(command[: len(PYTHON_RUNNER)]) == PYTHON_RUNNER else "native"


def _runs_here(program: Path) -> bool:
    """Whether this machine can start a program; one for another processor, or without its C library, it cannot."""
    if not program.is_file():
        return False
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
