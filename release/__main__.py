"""Makes a release of the commit: `python -m release`, for which `make release` installs what it needs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from native.zig.compiling import PLATFORMS, RUNNERS
from partc import __version__
from partc.format.names import RUNNER_FILE
from release import sums
from release.archives import native_wheel, plain_wheel, source_archive
from release.bill import bill_of_materials
from release.errors import ReleaseError
from release.linked import Library, libraries
from release.shared import shared_files
from release.tree import ROOT, check_committed, commit_time, copy_tree, put_in_place


def main(arguments: Sequence[str] | None = None) -> int:
    """Build runners and archives, compare them with a second run, and say how large they are; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", metavar="DIR", help="an own folder: it is replaced"
    )
    parser.add_argument("--changed", action="store_true", help="take files as they are, committed or not")
    parser.add_argument("--once", action="store_true", help="make no second run to compare with")
    given = parser.parse_args(arguments)
    try:
        _check_replaceable(given.out)
        if not given.changed:
            check_committed()
        os.environ["SOURCE_DATE_EPOCH"] = str(commit_time())
        runners = _built_runners()
        _release(given.out, runners, is_compared=not given.once)
    except (ReleaseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in sorted(given.out.iterdir()):
        print(f"{path.stat().st_size:>11,}  {path.name}")
    return 0


def make_release(
    out: Path, runners: Mapping[str, Path], linked: Sequence[Library], root: Path = ROOT
) -> None:
    """Write all files of a release into an empty folder.

    Args:
        out: the folder.
        runners: platform → native runner.
        linked: what they contain.
        root: the checkout.

    Raises:
        ReleaseError: something that it is made of is missing or wrong.
    """
    seconds = commit_time(root)
    shared = list(shared_files(seconds))
    bill = bill_of_materials(linked, root, seconds)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "partc")
        copy_tree(tree, root)
        source_archive(tree, out)
        plain_wheel(tree, out, shared)
        native_wheel(tree, out, shared, runners, linked, bill)
    (out / f"partc-{__version__}.cdx.json").write_text(bill, encoding="utf-8")
    sums.write_sums(out)


def _check_replaceable(out: Path) -> None:
    """Refuse a folder with anything but the files of a release, which would be lost."""
    others = {path.name for path in out.iterdir()} - sums.named(out) if out.is_dir() else set()
    if others or (out.exists() and not out.is_dir()):
        what = f"holds {min(others)}, which is no file of a release" if others else "is no folder"
        raise ReleaseError(f"{out} {what}\n  hint: remove it, or name another folder with --out")


def _release(out: Path, runners: Mapping[str, Path], *, is_compared: bool) -> None:
    """Replace the folder when everything in it is made."""
    linked = libraries()
    with tempfile.TemporaryDirectory() as scratch:
        first, second = Path(scratch, "first"), Path(scratch, "second")
        make_release(first, runners, linked)
        if is_compared:
            make_release(second, runners, linked)
            sums.check_same(first, second)
        put_in_place(first, out)


def _built_runners() -> dict[str, Path]:
    """A runner for each platform; those that are up to date are not built again."""
    done = subprocess.run([sys.executable, "-m", "native.zig", *PLATFORMS], cwd=ROOT, check=False)
    if done.returncode:
        raise ReleaseError("the runners could not be built; the lines above say why")
    return {name: ROOT / RUNNERS / name / RUNNER_FILE for name in PLATFORMS}


if __name__ == "__main__":
    sys.exit(main())
