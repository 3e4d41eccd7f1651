"""The pages of the site: every manual, every command and every name of `import partc` has its place in it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

import partc
from release.commands import Command, commands
from release.errors import ReleaseError
from release.site import building, staging
from release.site.api_page import BESIDE, api_page
from release.site.checks import problems
from release.site.command_pages import command_pages, page, top_pages
from release.site.markdown import code, escaped, linked_paths, with_paths
from release.site.navigation import Group, groups
from release.site.staging import navigation
from release.tree import ROOT, write_files


def test_the_navigation_lists_every_manual_once() -> None:
    found = groups((ROOT / "docs/README.md").read_text(encoding="utf-8"))
    listed = [name for group in found for name in group.manuals]
    there = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(there)
    assert [group.readers for group in found] == ["users", "developers", "other runtimes"]
    text = "\n".join(navigation(ROOT, []))
    assert [text.count(f"\ndocs/{name}\n") for name in there] == [1] * len(there)


def test_groups_are_read_from_a_table() -> None:
    rows = "| for | manual |\n|---|---|\n| a | [x](x.md) | … |\n| | [y](y.md) | … |\n| b | [z](z.md) | … |"
    assert groups(rows) == [Group("a", ("x.md", "y.md")), Group("b", ("z.md",))]
    with pytest.raises(ReleaseError, match="no table"):
        groups("# Manuals")
    with pytest.raises(ReleaseError, match=r"no readers for y\.md"):
        groups("| | [y](y.md) | … |")


def test_every_command_has_a_page_with_its_options() -> None:
    pages = dict(command_pages())
    assert set(pages) == {f"commands/{command.name}.md" for command in commands()}
    assert top_pages() == ["commands/partc", "commands/partc-runner"]
    for command in commands():
        text = pages[f"commands/{command.name}.md"]
        missing = [term for term, meaning in command.options if meaning and f"\n{code(term)}\n: " not in text]
        assert missing == [], command.name
        assert "## Examples" in text
    below = [line for line in pages["commands/partc.md"].splitlines() if line.startswith("partc-")]
    assert below == [command.name for command in commands() if command.program.count(" ") == 1]


def test_help_is_shown_as_it_is() -> None:
    command = Command("a", "s", "u", ["*1* <b> {x}`y` [z](q)"], [("--b `c`", "_d_ | --e")])
    text = page(command, {})
    assert "\\*1\\* \\<b\\> \\{x\\}\\`y\\` \\[z\\]\\(q\\)" in text
    assert "\n`` --b `c` ``\n: \\_d\\_ \\| \\-\\-e" in text
    assert escaped("a\n  b") == "a b"


def test_the_api_page_has_every_name() -> None:
    _require("griffe")
    text = api_page(ROOT)
    titles = [line[4:] for line in text.splitlines() if line.startswith("### ")]
    assert sorted(titles) == sorted([*partc.__all__, *BESIDE])
    assert "def plan(\n    model: PathLike," in text
    assert "\n`devices`\n: a devices.yaml.\n" in text
    assert "\n`gap: float | None`\n: How far value and bound" in text
    assert text.count("#### Ring.generate\n") == 1
    assert "([docs/balancing.md](docs/balancing.md))" in text
    assert "_file" not in text


def test_links_are_read_and_changed_outside_of_code() -> None:
    text = "[a](x.md#one) [b](#two) [c](https://c)\n```\n[d](y.md)\n```\n![e](z.svg)"
    assert linked_paths(text) == ["x.md", "z.svg"]
    changed = with_paths(text, lambda path: f"up/{path}")
    assert changed == "[a](up/x.md#one) [b](#two) [c](https://c)\n```\n[d](y.md)\n```\n![e](up/z.svg)"


def test_what_manuals_link_to_comes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "api_page", lambda _: "# API")
    root, tree = tmp_path / "checkout", tmp_path / "tree"
    files = {
        "README.md": "# First\n[m](docs/README.md)",
        "CHANGELOG.md": "# Changes",
        "docs/README.md": "| for | manual |\n|---|---|\n| us | [a](a.md) | … |",
        "docs/a.md": "# A\n[up](../README.md#x) [f](../src/f.c) [d](../src) [n](../n) [out](../../secret.txt)",
        "src/f.c": "int f;",
        "n/README.md": "# N\n[more](more.md)",
        "n/more.md": "# More",
    }
    write_files(root, files.items())
    (tmp_path / "secret.txt").write_text("elsewhere")
    staging.stage(tree, root)
    manual = (tree / "docs/a.md").read_text()
    assert "[up](../index.md#x) [f](../src/f.c) [d](../src/files.md) [n](../n/README.md)" in manual
    assert (tree / "src/f.c").read_text() == "int f;"
    assert "- [`f.c`](f.c)" in (tree / "src/files.md").read_text()
    first = (tree / "index.md").read_text()
    assert "\nn/README.md\nn/more.md\nsrc/files.md\nCHANGELOG.md\n" in first
    assert [path.name for path in tmp_path.rglob("secret.txt")] == ["secret.txt"]


def test_problems_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h1 id="one">B</h1>')
    (tmp_path / "s.css").write_text("a { background: url(data:x) } @import 'https://fonts.test/f.css';")
    good = '<link rel="next" href="https://x.test"><a href="b.html#one">b</a> <a href="https://c.test">c</a>'
    (tmp_path / "a.html").write_text(good)
    assert problems(tmp_path) == ["s.css: https://fonts.test/f.css would be loaded from another host"]
    bad = '<a href="c.html">c</a><a href="b.html#two">b</a><script src="//x.test/y.js"></script><img src="no.png">'
    (tmp_path / "a.html").write_text(good + bad)
    assert problems(tmp_path)[:-1] == [
        "a.html: c.html leads to no file",
        "a.html: b.html#two leads to no title",
        "a.html: //x.test/y.js would be loaded from another host",
        "a.html: no.png is not there",
    ]


def test_a_folder_with_anything_else_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_NEEDED", ())
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ReleaseError, match="holds no site"):
        building.build_site(tmp_path)
    assert (tmp_path / "mine").is_file()


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_NEEDED", ("partc", "no_such_library"))
    with pytest.raises(ReleaseError, match=r"no no_such_library\n  hint: `make docs`"):
        building.build_site(tmp_path / "site")


def _require(*names: str) -> None:
    missing = [name for name in names if find_spec(name) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"no {', '.join(missing)}: make setup installs them")
    if missing:
        pytest.skip(f"no {', '.join(missing)}: pip install '.[docs]'")
