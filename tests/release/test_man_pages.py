"""Manual pages: one for each command, with all that `--help` says, and such that man reads them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from partc.cli.main import COMMANDS
from release.commands import Command, commands
from release.man_pages import page, page_file
from release.shared import shared_files

PAGES = {command.name: command for command in commands()}
SECONDS = 1_750_000_000


def test_every_command_has_a_page() -> None:
    assert {"partc", "partc-runner", *(f"partc-{name}" for name in COMMANDS)} <= PAGES.keys()
    assert {"partc-fleet-up", "partc-golden-check"} <= PAGES.keys()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(name: str) -> None:
    command = PAGES[name]
    assert command.summary
    assert command.paragraphs
    assert any(term.endswith("--help") for term, _ in command.options)
    assert command.examples
    assert set(command.see_also) <= PAGES.keys()
    title = name.upper().replace("-", "\\-")
    assert page(command, SECONDS).startswith(f'.TH "{title}" 1 2025-06-15 "partc ')


def test_options_and_exit_codes_are_those_of_the_program() -> None:
    options = dict(PAGES["partc-compile"].options)
    assert "[required]" in options["--target DEVICES"]
    assert dict(PAGES["partc"].exit_codes)["70"] == "a bug of partc, with its traceback"
    assert dict(PAGES["partc-runner"].exit_codes)["1"] == "wrong bundle, keys or address"
    assert dict(PAGES["partc-runner"].options)["--patience SECONDS"].endswith("(default: 5)")
    assert "partc fleet up fleet.yaml" in PAGES["partc-fleet-up"].examples


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("man")
    for command in PAGES.values():
        (folder / page_file(command)).write_text(page(command, SECONDS))
    return sorted(folder.iterdir())


def test_man_renders_pages_without_a_warning(written: list[Path]) -> None:
    _require("man", "groff")
    assert [_warnings(path) for path in written] == [""] * len(written)


def test_man_warns_of_a_wrong_page(tmp_path: Path) -> None:
    _require("man", "groff")
    wrong = tmp_path / "wrong.1"
    wrong.write_text('.TH "X" 1\n.SH NAME\nx \\- \\*[nothing]\n')
    assert "nothing" in _warnings(wrong)


def _require(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"no {', '.join(missing)}: .ci/run installs them")
    if missing:
        pytest.skip(f"no {', '.join(missing)} (Debian: man-db, groff-base, mandoc)")


def _warnings(path: Path) -> str:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    command = ["man", "--warnings", "--local-file", str(path)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stderr


def test_mandoc_finds_no_error(written: list[Path]) -> None:
    _require("mandoc")
    command = ["mandoc", "-T", "lint", "-W", "warning", *map(str, written)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_text_stays_what_it_is() -> None:
    """A line of roff that begins with a dot is a request, and a backslash begins an escape."""
    text = page(Command("x", "s", "u", [".hidden\n'quoted"], [("-a", "C:\\x")]), SECONDS)
    assert "\n\\&.hidden\n\\&'quoted\n" in text
    assert "C:\\ex" in text


def test_completions_are_those_that_the_command_prints() -> None:
    files = dict(shared_files(SECONDS))
    told = {path: text for path, text in files.items() if "/man1/" not in path}
    assert len(told) == 3
    assert all("_PARTC_COMPLETE" in text for text in told.values())
    assert len(files) == len(told) + len(PAGES)


def test_nothing_of_the_terminal_goes_into_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert {command.name: page(command, SECONDS) for command in commands()} == {
        name: page(command, SECONDS) for name, command in PAGES.items()
    }
    assert click.get_current_context(silent=True) is None
