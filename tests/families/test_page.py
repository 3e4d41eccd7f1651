"""The page of families: a run rewrites its own section."""

from __future__ import annotations

from pathlib import Path

from tests.families.page import Kind, Outcome, read_outcomes, section, write_outcomes, write_section


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


def test_a_run_of_named_families_says_that_it_was_one(tmp_path: Path) -> None:
    outcomes = [Outcome("llama", "counts", "", 1.0)]
    some, whole = (section(Kind("tvm"), outcomes, whole=whole) for whole in (False, True))
    assert "`python -m tests.families --target tvm FAMILY … --markdown docs/families.md`" in some
    assert "Only the families named in this section were run." in some
    assert "Only" not in whole


def test_sections_of_the_same_models_stand_together(tmp_path: Path) -> None:
    page = tmp_path / "families.md"
    page.write_text("# Families\n\n## Target ort\n\nall\n\n## Pictures and sound, target ort\n\npictures\n")
    for kind in (Kind("ort", models="sources"), Kind("ort", "int4")):
        write_section(page, section(kind, []))
    titles = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert titles == [
        "## Target ort",
        "## Target ort, int4",
        "## Pictures and sound, target ort",
        "## Encoder-decoders, target ort",
    ]


def test_outcomes_are_read_as_they_were_written(tmp_path: Path) -> None:
    outcomes = [Outcome("llama", "counts", "", 1.0), Outcome("rwkv", "refused", "no cache", 2.5)]
    write_outcomes(tmp_path / "outcomes.json", outcomes)
    assert read_outcomes(tmp_path / "outcomes.json") == outcomes
