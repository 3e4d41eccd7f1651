"""The documents' tables are those of the structs."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.format.document import TABLES, documented

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_tables_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert documented(text) == text, "python -m partc.format.document docs"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_stands_somewhere(name: str) -> None:
    assert any(f"<!-- {name}: begin -->" in path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
