"""Where a build is made: a sibling folder that takes the build's place in one step when it is complete.

`build.partial-*` holds an unfinished build, locked as long as its compiler lives. What a killed compiler
leaves is found by the next one, which copies what is finished (`resume.py`) and removes it.
`build` itself is complete or absent at any time.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from partc.errors import BundleError

_CONTENTS = {"plan.json", "report.html", "runs", "keys", "devices"}
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Workspace:
    """An unfinished build."""

    folder: Path
    leftovers: list[Path] = field(default_factory=list)
    """Unfinished builds of compilers that are gone."""


def check_output(output: Path) -> None:
    """Refuse to replace a folder that is no build of partc's; cheap, so ask before the long work.

    Raises:
        BundleError: `output` is a file, or a folder with something else in it.
    """
    if not os.path.lexists(output):
        return
    if not output.is_dir():
        raise BundleError("is a file, not a folder", where=str(output), hint="give another folder with -o")
    names = {path.name for path in output.iterdir()}
    foreign = sorted(names - _CONTENTS)
    if foreign or (names and not {"plan.json", "devices"} <= names):
        held = f"holds {foreign[0]!r}" if foreign else "has no plan.json"
        raise BundleError(
            f"the folder is no build of partc's ({held}); nothing was changed",
            where=str(output), hint="give another folder with -o, or move its contents away",
        )  # fmt: skip


@contextmanager
def open_workspace(output: Path) -> Iterator[Workspace]:
    """An empty folder beside `output` to build in; with an error it is left as it is, to be resumed from.

    Raises:
        BundleError: `output` may not be replaced.
    """
    check_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    _restore(output)
    locks, leftovers = [], []
    for path in sorted(output.parent.glob(f"{_escape(output.name)}.partial-*")):
        lock = _try_lock(path)
        if lock is not None:
            locks.append(lock)
            leftovers.append(path)
    folder = output.parent / f"{output.name}.partial-{secrets.token_hex(4)}"
    folder.mkdir()
    own = _try_lock(folder)
    if own is None:  # another compile took the fresh folder for a leftover, before it was locked
        raise BundleError(
            "another compile is writing here", where=str(output), hint="wait for it, then compile again"
        )
    try:
        yield Workspace(folder, leftovers)
    finally:
        for lock in (*locks, own):
            os.close(lock)


def commit(workspace: Workspace, output: Path) -> None:
    """Put the finished build in the place of `output` and remove what is left over."""
    if not output.exists():
        workspace.folder.rename(output)
    elif _exchange(workspace.folder, output):
        shutil.rmtree(workspace.folder)
    else:
        old = output.with_name(f"{output.name}.old-{secrets.token_hex(4)}")
        output.rename(old)
        workspace.folder.rename(output)
        shutil.rmtree(old)
    for leftover in workspace.leftovers:
        shutil.rmtree(leftover, ignore_errors=True)


def _restore(output: Path) -> None:
    """Bring back the old build of a compiler that was killed between the two renames of `commit`."""
    for old in sorted(output.parent.glob(f"{_escape(output.name)}.old-*")):
        if output.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(output)


def _escape(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _try_lock(folder: Path) -> int | None:
    """A lock on the folder that ends with this process, or None while another process holds it."""
    if folder.is_symlink() or not folder.is_dir():
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step; False where the system cannot (then two renames must do)."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    return int(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)) == 0
