"""Scratch folders: `partc-scratch-KIND-*` in the folder for temporary files, locked as long as their process lives.

What a killed process leaves there is not locked any more; the next one of the same user that needs a scratch folder, of
whichever kind, removes it. The name is one that nobody gives a folder of their own: `partc-build` beside it is kept.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from partc.interrupts import at_the_end

_PREFIX = "partc-scratch-"
_own: dict[Path, int] = {}
"""Folder of this process → its lock."""


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """A new folder, removed at the end of the block.

    Args:
        kind: a word for its name.

    Raises:
        OSError: there is no room for it, or no right.
    """
    folder = _make(kind)
    try:
        yield folder
    finally:
        _remove_own(folder)


def scratch_for_life(kind: str) -> Path:
    """A new folder, removed when this process ends; raises as `scratch_folder`."""
    folder, owner = _make(kind), os.getpid()
    atexit.register(
        lambda: _remove_own(folder) if os.getpid() == owner else None
    )  # not in forks of this process
    return folder


def _make(kind: str) -> Path:
    _remove_leftovers()
    _remove_at_the_end()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        lock = _lock(folder)
        if lock is not None:
            _own[folder] = lock
            return folder
        # Another process took it for a leftover before it was locked.


@cache
def _remove_leftovers() -> None:
    """Remove the folders whose processes are gone; once a process is enough."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        lock = _lock(folder)
        if lock is not None:
            _remove(folder, lock)


@cache
def _remove_at_the_end() -> None:
    """Remove the folders of this process where it ends without leaving blocks; those of its parent are not its own."""
    os.register_at_fork(after_in_child=_own.clear)
    at_the_end(_remove_all_own)


def _remove_all_own() -> None:
    for folder in list(_own):
        _remove_own(folder)


def _remove_own(folder: Path) -> None:
    if (lock := _own.pop(folder, None)) is not None:
        _remove(folder, lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder of this user; None where it is none of ours, gone, or its process lives."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = folder.stat()  # another process may have removed it meanwhile
        if here.st_uid == os.getuid() and here.st_ino == os.fstat(handle).st_ino:
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
