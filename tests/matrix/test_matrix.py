"""The cells of the matrix are right, and what cannot be combined is refused for the reason that the table states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.axes import AXES, Cell, all_cells, name_of, pairs_of
from tests.matrix.cells import Matrix, compiled
from tests.matrix.covering import covering
from tests.matrix.document import FILE, text
from tests.matrix.rules import RULES, Rule, cell_of, rule_of
from tests.turns import turn

ROOT = Path(__file__).parents[2]
POSSIBLE = [cell for cell in all_cells() if rule_of(cell) is None]
CELLS = covering(POSSIBLE)
SAMPLE = 2
"""Cells that every run plays; with the next commit these are others."""

processes = [
    pytest.mark.hf,
    pytest.mark.ort,
    pytest.mark.tvm,
    pytest.mark.native,
    pytest.mark.filterwarnings("ignore:At least one mel filter has all zero values"),
]


def _sample() -> list[Cell]:
    begin = turn() * SAMPLE
    return [CELLS[(begin + place) % len(CELLS)] for place in range(SAMPLE)]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return Matrix(tmp_path_factory.mktemp("matrix"))


def _check(matrix: Matrix, cell: Cell, folder: Path) -> None:
    played = matrix.played(cell, folder)
    assert played is not None, "refused"
    assert list(played) == list(matrix.expected(cell))


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=processes, id=name_of(cell)) for cell in _sample()]
)
def test_a_cell_of_this_commit(matrix: Matrix, cell: Cell, tmp_path: Path) -> None:
    _check(matrix, cell, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [pytest.param(cell, marks=processes, id=name_of(cell)) for cell in CELLS])
def test_a_cell(matrix: Matrix, cell: Cell, tmp_path: Path) -> None:
    _check(matrix, cell, tmp_path)


@pytest.mark.in_turns(8)
@pytest.mark.hf
@pytest.mark.ort
@pytest.mark.tvm
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.says], ids=lambda rule: rule.says[:30])
def test_what_does_not_go_together_is_refused(
    rule: Rule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled(cell_of(rule), tmp_path) == 1
    assert rule.says in " ".join(capsys.readouterr().err.split())


def test_cells_hold_all_pairs() -> None:
    held = {pair for cell in CELLS for pair in pairs_of(cell)}
    assert held == {pair for cell in POSSIBLE for pair in pairs_of(cell)}
    assert len(CELLS) < 40


def test_rules_name_values_of_the_axes() -> None:
    for rule in RULES:
        assert all(set(values) <= set(AXES[axis]) for axis, values in rule.when.items())
        assert [each for each in RULES if each.holds(cell_of(rule))] == [rule]


def test_the_page_is_of_these_tables() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "python -m tests.matrix.document"
