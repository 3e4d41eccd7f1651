"""What runs a device on this machine: the native runner in the device's folder, or the one of this package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from partc.errors import RunError
from partc.format.files import RUNNER_FILE

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


def runner_kind(command: Sequence[str]) -> Runner:
    """The kind of the runner that a command starts."""
    return "python" if tuple(command) == PYTHON_RUNNER else "native"


def _runs_here(program: Path) -> bool:
    """Whether this machine can start a program; one for another processor, or without its C library, it cannot."""
    if not program.is_file():
        return False
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
