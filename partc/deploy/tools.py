"""Programs of the system that reach devices."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from partc.errors import RunError

_LIMIT_S = 3600.0
"""Folders of gigabytes go over slow links."""


def run_tool(words: Sequence[str], *, install: str, look: str, where: str | None = None) -> None:
    """Run a program, `words[0]`, to its end.

    Args:
        words: the command.
        install: a hint where there is no such program.
        look: a hint where it fails.
        where: the device, for messages.

    Raises:
        RunError: it is not there, does not come to an end, or failed; with the last line of what it said.
    """
    name = words[0]
    program = shutil.which(name)
    if program is None:
        raise RunError(f"there is no {name}", where=where, hint=install, cause="input")
    try:
        done = subprocess.run(
            [program, *words[1:]], capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{name} does not come to an end", where=where, hint=look, cause="stalled") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise RunError(f"{_label(words)} failed: {said}", where=where, hint=look, cause="input")


def _label(words: Sequence[str]) -> str:
    """`adb push`, or the program alone where options follow its name."""
    return words[0] if words[1:2] and words[1].startswith("-") else " ".join(words[:2])
