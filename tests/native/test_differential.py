"""The corpus of the fuzz targets, and mutants of it: both runners' readers say the same of every input."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import differential
from tests.native.differential import first_difference, inputs
from tests.native.formats import Formats, started
from tests.native.readers import Reader, readers

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def formats(built: Path) -> Iterator[Formats]:
    with started(built / "formats") as process:
        yield Formats(process)


@pytest.mark.parametrize("name", sorted(inputs()))
def test_readers_agree(name: str, formats: Formats, tmp_path: Path) -> None:
    found, taken = first_difference(formats, tmp_path, name, random.Random(1), 200)
    assert not found
    assert 5 < taken < len(inputs()[name]) + 150, "some mutants are harmless, most are not"


def test_a_reader_that_differs_is_found(
    formats: Formats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lax(folder: Path) -> dict[str, Reader]:
        return {**readers(folder), "program": lambda text: readers(folder)["program"](text.strip(b","))}

    monkeypatch.setattr(differential, "readers", lax)
    found, _ = first_difference(formats, tmp_path, "program", random.Random(1), 2000)
    assert "Python b'" in found and "native None" in found
