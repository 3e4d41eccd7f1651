"""Views of what a command prints, so that a golden case shows its point and not all that surrounds it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_OBJECT = re.compile(r"^(plan )?(?=\{)", re.MULTILINE)
"""The beginning of a JSON object: a document of its own, or the plan in IR text."""


def substituted(text: str, rules: Sequence[str], *, must_match: bool = False) -> str:
    """`text` after rules of the form `regular expression => replacement`, each applied everywhere.

    Raises:
        ValueError: `must_match`, and a rule finds nothing.
    """
    for rule in rules:
        pattern, _, replacement = rule.partition(" =>")
        text, count = re.subn(pattern, replacement.removeprefix(" "), text, flags=re.MULTILINE)
        if must_match and not count:
            raise ValueError(f"nothing matches {pattern!r}")
    return text


def picked(text: str, paths: Sequence[str]) -> str:
    """`text` with every JSON object in it written as lines `path = value`, for these paths alone.

    A path is a series of keys and indices with dots between them. Each object shows those that it has; one that no
    object has is shown as missing in each. Without paths `text` is returned as it is.
    """
    if not paths:
        return text
    objects = list(_objects(text))
    missing = [path for path in paths if all(_at(value, path) is None for *_, value in objects)]
    pieces, done = [], 0
    for start, end, keyword, value in objects:
        shown = [(path, "missing" if path in missing else _at(value, path)) for path in paths]
        pieces += [text[done:start], *(f"{keyword}{path} = {found}\n" for path, found in shown if found)]
        done = end + 1
    return "".join([*pieces, text[done:]])


def _objects(text: str) -> Iterator[tuple[int, int, str, Any]]:
    """Each JSON object: where it begins and ends, the word before it, and what it holds."""
    done = 0
    for match in _OBJECT.finditer(text):
        if match.start() < done:
            continue
        try:
            value, done = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            continue
        yield match.start(), done, match[1] or "", value


def _at(value: Any, path: str) -> str | None:
    """The value at a path as JSON; None where there is none."""
    for key in path.split("."):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return json.dumps(value, ensure_ascii=False)


def difference(before: str, after: str) -> str:
    """How `after` differs from `before`: a unified diff with a line around each change, without line numbers."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    changes = [line for line in lines if not line.startswith(("--- ", "+++ "))]
    return "".join(f"{'@@' if line.startswith('@@') else line}\n" for line in changes)
