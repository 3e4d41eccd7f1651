"""Fuzz targets of native/fuzz: their corpus is replayed in every run, and the tier `fuzz` looks for more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.native.compiled import compile_native, need
from tests.native.conftest import Program
from tests.native.fuzz import CORPUS, TARGETS, fuzz, main
from tests.native.seeds import RING, ring_text

SECONDS = 60
MOST_BYTES = 300_000
"""Bytes of the whole corpus."""


@pytest.mark.native
@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_replayed(target: str, program: Program) -> None:
    inputs = sorted((CORPUS / target).iterdir())
    assert inputs, f"python -m tests.native.fuzz {target} --reseed"
    assert program(f"fuzz_{target}", *inputs) == f"{len(inputs)}\n"


def test_the_ring_of_the_target_member_is_that_of_the_lives() -> None:
    assert RING.read_text(encoding="utf-8") == ring_text(), "python -m tests.native.fuzz member --reseed"


@pytest.fixture(scope="session")
def fuzzers() -> Path:
    need(None if shutil.which("clang++") else "no clang++")
    return compile_native("fuzz")


@pytest.mark.fuzz
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_a_reader(target: str, fuzzers: Path) -> None:
    fuzz(fuzzers, target, f"-max_total_time={SECONDS}")


@pytest.mark.native
def test_the_readers_of_both_runners_are_compared_for_as_long_as_one_likes(
    built: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.native.fuzz.compile_native", lambda preset: built)
    assert main(["differential", "--runs", "1400"]) == 0
    *rows, last = capsys.readouterr().out.splitlines()
    assert last.startswith("DONE 1400 inputs") and len(rows) == 8
    assert all("200 inputs" in row and " 0 accepted" not in row for row in rows[1:])


@pytest.mark.native
def test_readers_that_differ_are_told_with_the_input(
    built: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.native.fuzz.compile_native", lambda preset: built)
    monkeypatch.setattr("tests.native.differential.difference", lambda *given: f"{given[1]}: differs")
    assert main(["differential", "--runs", "1"]) == 1
    assert "build: differs" in capsys.readouterr().out


def test_the_corpus_is_small_and_has_a_target_each() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < MOST_BYTES
