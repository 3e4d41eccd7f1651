"""Tables of contents in the docstrings of packages: every module of such a package stands in it, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_FENCED = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (`[^|]+) \|", re.MULTILINE)
_NAME = re.compile(r"[a-z_][a-z0-9_]*(?:/[a-z_]+)?")


def listed(docstring: str) -> set[str]:
    """The first column of a table, or of a fenced list whose columns are two spaces apart, without `.py` and `/`."""
    lines = [line.strip(" │├└─") for block in _FENCED.findall(docstring) for line in block.splitlines()]
    heads = [re.split(r"\s{2,}", line, maxsplit=1)[0] for line in lines]
    names = [name for head in heads for name in re.split(r"[,\s]+", head)]
    names += [name for row in _ROW.findall(docstring) for name in re.findall(r"`([^`]+)`", row)]
    plain = {name.removesuffix(".py").rstrip("/") for name in names}
    return {name for name in plain if _NAME.fullmatch(name)}


def modules(folder: Path) -> set[str]:
    """The modules and packages in a package."""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def _indexed() -> list[Path]:
    """Packages whose docstring lists at least two of their modules."""
    packages = [
        path for name in ("partc", "passes", "targets") for path in (ROOT / name).rglob("__init__.py")
    ]
    return sorted(path for path in packages if len(listed(_docstring(path)) & modules(path.parent)) > 1)


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


@pytest.mark.parametrize("path", _indexed(), ids=lambda path: path.parent.relative_to(ROOT).as_posix())
def test_an_index_lists_every_module(path: Path) -> None:
    there = modules(path.parent)
    named = {name for name in listed(_docstring(path)) if "/" not in name}
    assert sorted(there - named) == [], "modules that the index lacks"
    assert sorted(named - there) == [], "names in the index that are no modules"


def test_a_list_and_a_table_are_read() -> None:
    assert len(_indexed()) >= 15
    assert listed("```\nroom   the room\n├── door.py, key    parts of it\n```") == {"room", "door", "key"}
    assert listed("| file | x |\n| --- | --- |\n| `a.py`, `b/` | a `c.py` |") == {"a", "b"}
