"""The run of Sphinx: a site of the manuals in a folder, or an error that names what is wrong in them."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

from release.errors import ReleaseError
from release.site.checks import problems
from release.site.staging import stage
from release.tree import ROOT, put_in_place

INDEX = "searchindex.js"
"""The file of the search: every site has it, and hardly anything else."""
_NEEDED = ("furo", "griffe", "myst_parser", "sphinx")


def build_site(out: Path, root: Path = ROOT) -> None:
    """Write the site of a checkout's manuals; a folder with an older one is replaced when the new one is whole.

    Raises:
        ReleaseError: the extra `docs` is not installed, a link is broken, or the folder holds something else.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ReleaseError(f"no {', '.join(missing)}\n  hint: `make docs` installs what it takes")
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / INDEX).is_file())):
        raise ReleaseError(
            f"{out} is there and holds no site\n  hint: remove it, or name another folder with --out"
        )
    with tempfile.TemporaryDirectory() as scratch:
        source, site = Path(scratch, "source"), Path(scratch, "site")
        stage(source, root)
        _run_sphinx(source, site, Path(scratch, "doctrees"))
        if found := problems(site):
            raise ReleaseError("\n".join([f"{len(found)} problems in the built site:", *found]))
        put_in_place(site, out)


def _run_sphinx(source: Path, site: Path, doctrees: Path) -> None:
    """Build; every warning, such as a link to a missing title, is an error."""
    from sphinx.cmd.build import build_main

    options = ["-b", "html", "-q", "-W", "--keep-going", "--no-color"]
    folders = ["-c", str(Path(__file__).parent), "-d", str(doctrees), str(source), str(site)]
    with contextlib.redirect_stderr(io.StringIO()) as told:
        code = build_main([*options, *folders])
    if code:
        text = told.getvalue().replace(f"{source}{os.sep}", "").rstrip()
        raise ReleaseError(f"Sphinx refuses the manuals (index.md is README.md):\n{text}")
    (site / ".buildinfo").unlink(missing_ok=True)
