"""The tree that Sphinx reads: manuals as they are, what they link to, and the pages that are made.

Files lie where they lie in the repository, so that links between them hold. Three things differ: README.md is
index.md, the first page; a link to a folder leads to its README.md, or to a list of its files; navigation follows the
text of the first page.
"""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path

from release.site.api_page import API, api_page
from release.site.command_pages import command_pages, top_pages
from release.site.markdown import code, linked_paths, toctree, with_paths
from release.site.navigation import groups
from release.tree import write_files

FIRST, CHANGES = "README.md", "CHANGELOG.md"
_INDEX, _MANUALS, _LIST = "index.md", "docs/README.md", "files.md"
_IGNORED = {"node_modules", "__pycache__"}


def stage(target: Path, root: Path) -> None:
    """Write pages and files into an empty folder.

    Raises:
        ReleaseError: docs/README.md has no groups.
    """
    pages = _pages(root)
    made = {f"{folder}/{_LIST}": _list_of_files(root, folder) for folder in _listed(root, pages)}
    for path, text in (*pages.items(), *made.items()):
        for linked in _linked(path, text):
            if (root / linked).is_file() and linked not in pages:
                (target / linked).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / linked, target / linked)
    others = [path for path in (*pages, *made) if "/" in path and not path.startswith("docs/")]
    pages[FIRST] += "\n" + "\n\n".join(navigation(root, sorted(others))) + "\n"
    texts = {_renamed(path): _with_own_paths(root, path, text) for path, text in pages.items()}
    write_files(target, (texts | made | dict(command_pages()) | {f"{API}.md": api_page(root)}).items())


def navigation(root: Path, others: list[str]) -> Iterator[str]:
    """The groups of pages, in their order; `others` are those of the repository outside of docs/."""
    yield toctree([_MANUALS])
    for group in groups((root / _MANUALS).read_text(encoding="utf-8")):
        yield toctree([f"docs/{name}" for name in group.manuals], f":caption: For {group.readers}")
    yield toctree([*top_pages(), API], ":caption: Reference")
    yield toctree([*others, CHANGES], ":caption: Examples and changes")


def _pages(root: Path) -> dict[str, str]:
    """Path in the repository → text, of what is written by hand: manuals, examples, and what these link to."""
    examples = sorted(path for path in (root / "examples").rglob(FIRST) if _IGNORED.isdisjoint(path.parts))
    first = (root / FIRST, root / CHANGES, *sorted((root / "docs").glob("*.md")), *examples)
    waiting = [path.relative_to(root).as_posix() for path in first]
    found: dict[str, str] = {}
    while waiting:
        page = waiting.pop(0)
        if page not in found and (root / page).is_file():
            found[page] = (root / page).read_text(encoding="utf-8")
            linked = _linked(page, found[page])
            waiting += [path if path.endswith(".md") else f"{path}/{FIRST}" for path in linked]
    return found


def _listed(root: Path, pages: dict[str, str]) -> list[str]:
    """Folders without a page that pages link to."""
    linked = {path for page, text in pages.items() for path in _linked(page, text)}
    return sorted(path for path in linked if (root / path).is_dir() and not (root / path / FIRST).is_file())


def _list_of_files(root: Path, folder: str) -> str:
    """A page that offers the files of a folder."""
    files = sorted(
        path.relative_to(root / folder).as_posix()
        for path in (root / folder).rglob("*")
        if path.is_file() and _IGNORED.isdisjoint(path.parts)
    )
    entries = [f"- [{code(name)}]({name})" for name in files]
    return f"# {folder}\n\nThe files of this folder of the repository.\n\n" + "\n".join(entries) + "\n"


def _linked(page: str, text: str) -> Iterator[str]:
    """Paths in the repository that a page links to; what lies outside of it is left to Sphinx to refuse."""
    for path in linked_paths(text):
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if not there.startswith(".."):
            yield there


def _with_own_paths(root: Path, page: str, text: str) -> str:
    """The text of a page with links as they are in this tree."""
    here = posixpath.dirname(page)

    def changed(path: str) -> str:
        there = posixpath.normpath(posixpath.join(here, path))
        if (root / there).is_dir():
            there += f"/{FIRST if (root / there / FIRST).is_file() else _LIST}"
        elif there != FIRST:
            return path
        return posixpath.relpath(_renamed(there), here or ".")

    return with_paths(text, changed)


def _renamed(path: str) -> str:
    return _INDEX if path == FIRST else path
