"""Texts of others at a terminal: no control character of theirs gets there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.cli import main as cli
from partc.cli.tables import show, table
from partc.errors import RunError
from partc.printable import note, one_line, printable
from partc.runtime import cli as runner_cli

TITLE = "\x1b]0;owned\x07\x9b2J"
SHOWN = r"\x1b]0;owned\x07\x9b2J"


@given(st.text(st.characters()))
def test_no_control_character_is_left(text: str) -> None:
    found = printable(text)
    assert not {letter for letter in found if ord(letter) < 32 or 127 <= ord(letter) < 160} - {"\n", "\t"}
    assert printable(found) == found
    found.encode()


def test_other_texts_stay_as_they_are() -> None:
    assert printable("é\t字\n😀 \\x1b") == "é\t字\n😀 \\x1b"
    assert printable(TITLE) == SHOWN
    assert printable("a\ud800b") == "a\ufffd\ufffd\ufffdb"


def test_texts_neither_turn_nor_end_a_line_of_a_log() -> None:
    assert printable("a\u202egpj.exe\u2066\u2028") == r"a\u202egpj.exe\u2066\u2028"
    assert one_line("a\tb\nc\u2028d", 6) == r"a\x09b\x0ac\u2028"


def test_an_error_of_a_device_is_shown_without_its_commands_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = RunError(f"it says {TITLE}", where=f"a{TITLE}", hint=f"see {TITLE}", cause="lost-peer")
    assert cli.exit_code(error) == 1
    assert cli.exit_code(click.UsageError(f"no such option {TITLE}")) == 2
    assert cli.exit_code(RuntimeError(TITLE)) == 70
    shown = capsys.readouterr().err
    assert "\x1b" not in shown and "\x07" not in shown and "\x9b" not in shown
    assert shown.count(SHOWN) == 5


def test_a_table_shows_cells_without_commands_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(table("t", ["device"], [[TITLE]]), f"note: {TITLE}")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and shown.count(r"\x1b]0;owned") == 2


def test_a_runner_shows_errors_without_commands_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = runner_cli.main(["--bundle", f"/nowhere/{TITLE}", "--insecure"])
    shown = capsys.readouterr().err
    assert code == 1
    assert SHOWN in shown and "\x1b" not in shown


def test_notes_are_written_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    note(f"a says {TITLE}")
    assert capsys.readouterr().err == f"note: a says {SHOWN}\n"
    root = Path(__file__).parents[1]
    writes = re.compile(r'(print|echo)\(\S*f?"note: ')
    files = [
        path for path in (root / "partc").rglob("*.py") if writes.search(path.read_text(encoding="utf-8"))
    ]
    assert [path.name for path in files] == ["printable.py"]
