"""The formula of guessed tokens is that of rings of cores: the cases of `tests.bench.formula`, with short answers."""

from __future__ import annotations

import pytest

from tests.bench.formula import Case, cases, measured


def test_there_are_thirty_cases_in_rings() -> None:
    assert sum(len(case.seconds) > 1 for case in cases()) == 30


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    "case", [case for case in cases() if case.share < 0.9 and case.delay_s != 0.005], ids=str
)
def test_ordinary_text_takes_as_long_as_the_formula_says(case: Case) -> None:
    assert abs(measured(case, tokens=100).off) < 0.06


@pytest.mark.parametrize(
    "case", [case for case in cases() if case.share == 1.0 and case.delay_s < 0.002], ids=str
)
def test_copies_take_hardly_longer_than_the_formula_says(case: Case) -> None:
    assert -0.05 < measured(case, tokens=100).off < 0.08
