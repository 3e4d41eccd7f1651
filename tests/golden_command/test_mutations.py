"""`partc golden check` says what changed, where, and whose doing it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.api.pipelines import Following
from partc.golden.checking import Outcome, check_case
from partc.golden.config import load_cases
from partc.golden.making import make_record
from partc.golden.record import write_record
from tests.golden_command.mutations import FAMILIES, Mutation, Reader, mutations

pytestmark = pytest.mark.hf
ALL = list(mutations())
EVERY_RUN = (
    "config num_hidden_layers 3",
    "config intermediate_size 64",
    "config rms_norm_eps 0.001",
    "seed",
    "model.yaml int8",
    "model.yaml float16",
    "device slower",
    "pass fuse-operators adds an operator",
    "importer",
    "another torch",
)
"""Mutations that every run tries with one family; the tier `slow` tries all of them with all."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Family → a folder with its record."""
    return {}


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("family", "mutation"),
    [
        pytest.param(
            family,
            mutation,
            id=f"{family}-{mutation.name}",
            marks=() if family == "llama" and mutation.name in EVERY_RUN else pytest.mark.slow,
        )
        for family in FAMILIES
        for mutation in ALL
    ],
)
def test_what_changed_and_why(
    family: str,
    mutation: Mutation,
    kept: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if family not in kept:
        kept[family] = tmp_path_factory.mktemp(family)
        reader = Reader.of(kept[family], family)
        reader.write()
        (case,) = load_cases(reader.folder)
        write_record(make_record(case, Following()), case.folder)
        assert _checked(reader).equal
    reader = Reader.of(kept[family], family)
    mutation.mutate(reader, monkeypatch)
    reader.write()
    found = _checked(reader)
    lines = [f"{change.key}: {change.text} due to {change.causes}" for change in found.changes]
    assert any(mutation.told in change.key for change in found.changes), lines
    assert any(mutation.cause in cause for cause in found.changes[0].causes), lines
    assert all(change.causes for change in found.changes)


def _checked(reader: Reader) -> Outcome:
    (case,) = load_cases(reader.folder)
    return check_case(case, (), Following())
