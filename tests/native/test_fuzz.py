"""Fuzz targets of native/fuzz: their corpus is replayed in every run, and the tier `fuzz` looks for more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.native.compiled import compile_native, need
from tests.native.conftest import Program
from tests.native.fuzz import CORPUS, TARGETS, fuzz

SECONDS = 60
MOST_BYTES = 300_000
"""Bytes of the whole corpus."""


@pytest.mark.native
@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_replayed(target: str, program: Program) -> None:
    inputs = sorted((CORPUS / target).iterdir())
    assert inputs, f"python -m tests.native.fuzz {target} --reseed"
    assert program(f"fuzz_{target}", *inputs) == f"{len(inputs)}\n"


@pytest.fixture(scope="session")
def fuzzers() -> Path:
    need(None if shutil.which("clang++") else "no clang++")
    return compile_native("fuzz")


@pytest.mark.fuzz
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_a_reader(target: str, fuzzers: Path) -> None:
    fuzz(fuzzers, target, f"-max_total_time={SECONDS}")


def test_the_corpus_is_small_and_has_a_target_each() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < MOST_BYTES
