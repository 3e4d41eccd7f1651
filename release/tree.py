"""The files of a commit, in a folder of their own: what lies beside them in a checkout gets into no archive."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from release.errors import ReleaseError

ROOT = Path(__file__).resolve().parents[1]
_SHOWN = 5
"""Files that a message names."""


def check_committed(root: Path = ROOT) -> None:
    """Refuse a checkout that differs from its commit.

    Raises:
        ReleaseError: names the first files that do.
    """
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        named = ", ".join(line[3:] for line in changed[:_SHOWN])
        raise ReleaseError(
            f"{len(changed)} files differ from the commit: {named}\n  hint: commit them first, or give --changed"
        )


def commit_time(root: Path = ROOT) -> int:
    """Seconds since 1970 that all files of a release bear: SOURCE_DATE_EPOCH where it is set, else those of the commit.

    Raises:
        ReleaseError: the variable holds no number, or there is neither it nor a commit.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct").strip()
    if not text.isdecimal():
        raise ReleaseError(f"SOURCE_DATE_EPOCH is {text!r}, and no number of seconds")
    return int(text)


def copy_tree(target: Path, root: Path = ROOT) -> None:
    """Copy the files that git knows, with plain modes, into an empty folder."""
    for name in filter(None, _git(root, "ls-files", "-z").split("\0")):
        if (root / name).is_file():
            copy_file(root / name, target / name)


def copy_file(source: Path, target: Path, *, executable: bool | None = None) -> None:
    """Copy a file; its mode is one of two, whatever the umask of a checkout was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    if executable is None:
        executable = os.access(source, os.X_OK)
    target.chmod(0o755 if executable else 0o644)


def put_in_place(made: Path, out: Path) -> None:
    """Replace a folder, if it is there, by one that is whole."""
    if out.exists():
        shutil.rmtree(out)
    shutil.copytree(made, out)


def write_files(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    """Write texts under their paths below a folder."""
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(
            f"git {words[0]} failed: {done.stderr.strip()}\n  hint: a release is made in a checkout"
        )
    return done.stdout
