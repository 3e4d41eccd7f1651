"""The page of families: a run rewrites its own section."""

from __future__ import annotations

from pathlib import Path

from tests.families.page import Kind, Outcome, section, write_section


def test_a_run_replaces_its_own_section(tmp_path: Path) -> None:
    page = tmp_path / "families.md"
    page.write_text("# Families\n\nIntroduction.\n\n## Target ort\n\nall\n\n## Target tvm\n\nold\n")
    outcomes = [Outcome("llama", "counts", "", 1.0), Outcome("rwkv", "refused", "no | cache hint: none", 1.0)]
    write_section(page, section(Kind("tvm"), outcomes))
    write_section(page, section(Kind("tvm", "int4"), outcomes[:1]))
    text = page.read_text()
    assert text.startswith(
        "# Families\n\nIntroduction.\n\n## Target ort\n\nall\n\n## Target tvm\n\nWritten by"
    )
    assert "old" not in text
    assert "`python -m tests.families --target tvm --quantize int4 --markdown docs/families.md`" in text
    assert text.count("| `rwkv` | refused | no / cache |") == 1
    assert text.endswith("\n\n`llama`.\n")
