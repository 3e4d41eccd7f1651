"""Links and plain text in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

DEFINITIONS = "---\nmyst:\n  enable_extensions: [deflist]\n---"
"""The head of a page that has lists of definitions; pages that people write have none."""
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)\s#]*)((?:#[^)\s]*)?)(?=\))")
"""A path and an anchor, of which one may be missing."""
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def escaped(text: str) -> str:
    """Markdown that shows a text as it is, on one line."""
    return _PUNCTUATION.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """A span of code; a text with backticks gets more of them around it."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def fenced(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


def described(term: str, meaning: str) -> str:
    """An entry of a list of definitions; both are Markdown."""
    return f"{term}\n: " + "\n  ".join(meaning.splitlines())


def toctree(entries: Iterator[str] | list[str], *options: str) -> str:
    """Pages that the navigation shows below this one, without a list of them in its text."""
    return fenced("{toctree}", "\n".join([":hidden:", *options, "", *entries]))


def linked_paths(text: str) -> list[str]:
    """Paths of the links in a text, without those to other hosts and within the page."""
    return [path for part in _FENCED.split(text)[::2] for path, _ in _LINK.findall(part) if is_path(path)]


def with_paths(text: str, changed: Callable[[str], str]) -> str:
    """A text whose links lead to other paths."""

    def link(found: re.Match[str]) -> str:
        path, anchor = found.groups()
        return (changed(path) if is_path(path) else path) + anchor

    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def is_path(link: str) -> bool:
    """Whether a link leads to a file beside the page."""
    return bool(link) and ":" not in link
