"""Builds the site of the manuals: `python -m release.site`, for which `make docs` installs what it needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from release.errors import ReleaseError
from release.site.building import build_site
from release.tree import ROOT


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site, and say how large it is; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release.site", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/site", metavar="DIR", help="an own folder: it is replaced"
    )
    given = parser.parse_args(arguments)
    try:
        build_site(given.out)
    except (ReleaseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    files = [path for path in given.out.rglob("*") if path.is_file()]
    pages = sum(path.suffix == ".html" for path in files)
    size = sum(path.stat().st_size for path in files)
    print(f"{pages} pages, {size / 1e6:.1f} MB: {given.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
