"""The site as Sphinx builds it: links, search, nothing from other hosts, and the same bytes each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from release.commands import commands
from release.site.checks import problems
from release.tree import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCRIPT = """
import sys
from pathlib import Path
from release.errors import ReleaseError
from release.site.building import build_site
try:
    build_site(Path(sys.argv[1]), Path(sys.argv[2]))
except ReleaseError as error:
    sys.exit(str(error))
"""


def build(out: Path, root: Path = ROOT, **variables: str) -> str:
    """Build in a process of its own, since Sphinx changes the process that it runs in; what was wrong."""
    missing = [name for name in ("furo", "griffe", "myst_parser", "sphinx") if find_spec(name) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"no {', '.join(missing)}: make setup installs them")
    if missing:
        pytest.skip(f"no {', '.join(missing)}: pip install '.[docs]'")
    command = [sys.executable, "-c", SCRIPT, str(out), str(root)]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False).stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    assert build(folder) == ""
    return folder


@pytest.mark.in_turns(3)
def test_every_page_is_there_and_nothing_is_broken(site: Path) -> None:
    assert problems(site) == []
    manuals = {f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    helps = {f"commands/{command.name}.html" for command in commands()}
    wanted = {"index.html", "api.html", "CHANGELOG.html", *manuals, *helps}
    assert wanted <= {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert "makes one transformer run on several small devices" in (site / "index.html").read_text()


@pytest.mark.in_turns(3)
def test_schemas_can_be_downloaded(site: Path) -> None:
    there = {path.name: path for path in (site / "_downloads").rglob("*.schema.json")}
    assert {path.name for path in (ROOT / "docs").glob("*.schema.json")} == there.keys()
    for name, path in there.items():
        assert path.read_bytes() == (ROOT / "docs" / name).read_bytes()


def test_search_knows_manuals_commands_and_names(site: Path) -> None:
    index = _index(site)
    assert {"commands/partc-compile", "docs/devices-yaml", "api"} <= _hits(index, "frontier")
    assert {"docs/wire"} <= _hits(index, "dealer")
    assert _hits(index, "nosuchword") == set()


def _index(site: Path) -> dict[str, Any]:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    return index


def _hits(index: dict[str, Any], term: str) -> set[str]:
    found = index["terms"].get(term, [])
    return {index["docnames"][number] for number in ([found] if isinstance(found, int) else found)}


@pytest.mark.browser
def test_search_works_without_a_server(site: Path, browser: Browser) -> None:
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site.as_uri()}/search.html?q=frontier")
    page.get_by_role("link", name="partc compile", exact=True).last.click()
    page.get_by_role("heading", name="partc compile").wait_for()
    assert page.url.startswith(f"{site.as_uri()}/commands/partc-compile.html")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()


@pytest.mark.browser
@pytest.mark.slow
def test_no_page_is_wider_than_a_phone(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 800})
    # Furo lets what is too wide for the window scroll in here; tables and code have scroll bars of their own.
    is_wide, wide = "(box => box.scrollWidth > box.clientWidth)(document.querySelector('.content'))", []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if page.evaluate(is_wide):
            wide.append(path.relative_to(site).as_posix())
    assert wide == []
    page.goto(f"{site.as_uri()}/index.html")
    page.evaluate("document.querySelector('article p').style.width = '900px'")
    assert page.evaluate(is_wide)
    page.close()


def test_broken_links_are_named(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    (root / "docs").mkdir(parents=True)
    (root / "partc").symlink_to(ROOT / "partc")
    (root / "README.md").write_text("# First\n\n[manuals](docs/README.md)\n")
    (root / "CHANGELOG.md").write_text("# Changes\n\n[python](docs/python.md)\n")
    (root / "docs/README.md").write_text(
        "# Manuals\n\n| for | manual |\n|---|---|\n| us | [p](python.md) | … |\n"
    )
    (root / "docs/python.md").write_text("# Python\n\n[a](missing.md) [b](README.md#nowhere)\n")
    told = build(tmp_path / "site", root)
    assert "docs/python.md:3: WARNING" in told
    assert "missing.md" in told
    assert "nowhere" in told
    assert not (tmp_path / "site").exists()


@pytest.mark.slow
def test_the_same_files_give_the_same_site(site: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert build(again, PYTHONHASHSEED="7", TZ="Asia/Tokyo", TMPDIR=str(tmp_path), LC_ALL="C") == ""
    assert _files(again) == _files(site)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
