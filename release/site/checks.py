"""What a built site must not have: links that lead nowhere, and files of other hosts that a browser would load."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADING = ("alternate", "author", "canonical", "help", "index", "license", "next", "prev", "search")
"""Relations of `<link>` to pages that no browser loads by itself."""
_IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class _Page(HTMLParser):
    """What a page has and asks for."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    """Where a reader may go."""
    loaded: list[str] = field(default_factory=list)
    """What a browser loads with the page."""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what a tag refers to."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and not set(given.get("rel", "").split()) <= set(_LOADING):
            self.loaded.append(given.get("href", ""))
        self.loaded += [given[name] for name in ("src", "poster", "data") if given.get(name)]
        self.loaded += [one.split()[0] for one in given.get("srcset", "").split(",") if one.strip()]
        self.loaded += _of_style(given.get("style", ""))


def problems(site: Path) -> list[str]:
    """Each problem of a site in a line; none: it is whole."""
    pages = {path.relative_to(site).as_posix(): _read(path) for path in sorted(site.rglob("*.html"))}
    ids = {name: page.ids for name, page in pages.items()}
    found = [
        problem
        for name, page in pages.items()
        for problem in (*_broken(site, name, page.links, ids), *_not_there(site, name, page.loaded))
    ]
    for path in sorted(site.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        found += _not_there(site, path.relative_to(site).as_posix(), _of_style(text))
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def _of_style(text: str) -> list[str]:
    """What a style sheet loads, without what it holds itself."""
    found = [one or other for one, other in _IN_STYLE.findall(text)]
    return [link for link in found if not link.startswith(("data:", "#"))]


def _broken(site: Path, page: str, links: list[str], ids: Mapping[str, set[str]]) -> Iterator[str]:
    for link in dict.fromkeys(links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = _joined(page, parts.path)
        if not (site / target).is_file():
            yield f"{page}: {link} leads to no file"
        elif parts.fragment and target in ids and unquote(parts.fragment) not in ids[target]:
            yield f"{page}: {link} leads to no title"


def _not_there(site: Path, page: str, loaded: list[str]) -> Iterator[str]:
    for link in dict.fromkeys(loaded):
        parts = urlsplit(link)
        if parts.scheme == "data":
            continue
        if parts.scheme or parts.netloc:
            yield f"{page}: {link} would be loaded from another host"
        elif not (site / _joined(page, parts.path)).is_file():
            yield f"{page}: {link} is not there"


def _joined(page: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path))) if path else page
