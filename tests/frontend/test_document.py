"""docs/checkpoints.md says what the tables of the code say."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.frontend.document import FILE, TABLES, documented

pytestmark = pytest.mark.hf
_MANUAL = Path(__file__).resolve().parents[2] / "docs" / FILE


def test_the_manual_has_the_tables_of_the_code() -> None:
    """Mended by `python -m partc.frontend.document docs`."""
    text = _MANUAL.read_text(encoding="utf-8")
    assert documented(text) == text
    assert all(f"<!-- {name}: begin -->" in text for name in TABLES)
