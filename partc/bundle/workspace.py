"""The folder in which a build is made: a sibling that takes the build's place in one step when it is complete.

`build.partial-*` holds an unfinished build, locked as long as its compiler lives. What a compiler that failed or was
killed leaves is found by the next one, which copies what is finished (`resume.py`) and removes it. Of several only the
one with the most finished devices is kept, and none without any: failing again and again fills no disk.
`build` itself is complete or absent at any time: all of it is on the disk before it gets its name, and its name before
the old build goes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from partc.atomic import flush_folder, flush_tree
from partc.bundle.resume import finished_devices
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
        raise BundleError(
            "this is a file, not a folder", where=str(output), hint="give another folder with -o"
        )
    names = _names(output)
    foreign = sorted(names - _CONTENTS)
    if foreign or (names and not {"plan.json", "devices"} <= names):
        held = f"holds {foreign[0]!r}" if foreign else "has no plan.json"
        raise BundleError(
            f"the folder is no build of partc's ({held}); nothing was changed",
            where=str(output), hint="give another folder with -o, or move its contents away",
        )  # fmt: skip


def _names(folder: Path) -> set[str]:
    """The content of a folder; another compile may exchange it meanwhile, and remove the old one."""
    while True:
        before = folder.stat().st_ino
        names = {path.name for path in folder.iterdir()}
        if folder.stat().st_ino == before:
            return names


@contextmanager
def open_workspace(output: Path) -> Iterator[Workspace]:
    """An empty folder beside `output` to build in; after an error, what is finished in it can be resumed from.

    Raises:
        BundleError: `output` may not be replaced.
    """
    check_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    _restore(output)
    with ExitStack() as locks:
        leftovers = _keep_most_finished(_lock_leftovers(output, locks))
        folder = _make_folder(output, locks)
        try:
            yield Workspace(folder, leftovers)
        except BaseException:
            _keep_most_finished([folder, *leftovers])
            raise


def _lock_leftovers(output: Path, locks: ExitStack) -> list[Path]:
    """Unfinished builds of compilers that are gone."""
    return [
        path for path in sorted(output.parent.glob(f"{_escape(output.name)}.partial-*")) if _lock(path, locks)
    ]


def _make_folder(output: Path, locks: ExitStack) -> Path:
    """A new folder that is locked; another compile may take one for a leftover before it is, and then owns it."""
    while True:
        folder = output.parent / f"{output.name}.partial-{secrets.token_hex(4)}"
        folder.mkdir()
        if _lock(folder, locks):
            return folder


def _keep_most_finished(folders: Sequence[Path]) -> list[Path]:
    """Remove all but the first of those with the most finished devices; what is left, none if there are no devices."""
    best = max(folders, key=finished_devices, default=None)
    kept = [best] if best is not None and finished_devices(best) else []
    for folder in folders:
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    return kept


def commit(workspace: Workspace, output: Path) -> None:
    """Put the finished build in the place of `output` and remove what is left over.

    Raises:
        BundleError: `output` became something else than a build while this one was made.
    """
    check_output(output)
    flush_tree(workspace.folder)
    leftovers = [workspace.folder, *workspace.leftovers]
    if not _rename_to_new(workspace.folder, output) and not _exchange(workspace.folder, output):
        old = output.with_name(f"{output.name}.old-{secrets.token_hex(4)}")
        output.rename(old)
        workspace.folder.rename(output)
        leftovers.insert(0, old)
    flush_folder(output.parent)  # before the old build goes
    # Where two were exchanged, the old build has the name of the new one's folder; another compile may remove it, too.
    for leftover in leftovers:
        shutil.rmtree(leftover, ignore_errors=True)


def _rename_to_new(folder: Path, output: Path) -> bool:
    """Rename a folder; False where there is one of the new name that is not empty."""
    try:
        folder.rename(output)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def _restore(output: Path) -> None:
    """Bring back the old build of a compiler that was killed between the two renames of `commit`."""
    for old in sorted(output.parent.glob(f"{_escape(output.name)}.old-*")):
        if output.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(output)


def _escape(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _lock(folder: Path, locks: ExitStack) -> bool:
    """Lock a folder until `locks` ends, or this process; False if it is gone, or another process holds it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    locks.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step; False where the system cannot (then two renames must do)."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    return int(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)) == 0
