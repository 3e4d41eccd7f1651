"""Files and folders that are complete or absent at any moment, after a loss of power as well.

A rename alone orders nothing on the disk: after a loss of power the new name may stand for an empty file. So
content is flushed before the rename, and the folder that holds the name after it. A system that cannot flush folders
(EINVAL on some network file systems) does what it can.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

_FILE_MODE = 0o666
_NOT_HERE = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}
"""Answers of file systems that do not flush folders, or not those of others."""


def write_file(path: Path, content: str | bytes, *, mode: int = _FILE_MODE) -> None:
    """Put content (text as UTF-8) at a path in one step.

    Raises:
        OSError: it cannot be written; what was there is unchanged, and nothing is left beside it.
    """
    draft = stage(path, content, mode=mode)
    try:
        replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def stage(path: Path, content: str | bytes, *, mode: int = _FILE_MODE) -> Path:
    """Write content beside a path, flushed, under a name of its own, which is returned; `replace` moves it there.

    Raises:
        OSError: it cannot be written; nothing is left.
    """
    raw = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}-{os.urandom(4).hex()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:  # a full disk is not filled further
        draft.unlink(missing_ok=True)
        raise
    return draft


def replace(source: Path, target: Path) -> None:
    """Move a flushed file or folder to its place, in the place of a file that was there, and flush the new name."""
    source.replace(target)
    flush_folder(target.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder, not what they stand for."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Flush all files and names in a folder and below it; links are not followed. O(files)."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            _flush_file(Path(place, name))
        flush_folder(Path(place))


def _flush_file(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink() or not path.is_file():
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
