"""Verdicts: what is no number is not equal, and every case counts, not only the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from partc.format.build import TensorType
from partc.format.program import Sample
from partc.runtime.client.client import Client
from partc.runtime.client.results import Crossing
from partc.verifier.check import rounding_note
from partc.verifier.compare import beside, difference, largest
from partc.verifier.expectation import Expectation
from partc.verifier.report import Case, CutError, Report
from partc.verifier.requests import OneStep


def _report(*errors: float, cuts: tuple[float, ...] = (), identical: int = 4) -> Report:
    cases = [Case(f"case {n}", 4, identical, error) for n, error in enumerate(errors)]
    crossings = [CutError("v", "a", "b", error, 1.0) for error in cuts]
    return Report(cases, crossings, 1e-4, 1.0)


def test_small_errors_are_equal_and_large_ones_are_not() -> None:
    assert _report(1e-6, 2e-6, cuts=(1e-5,)).equal
    assert not _report(1e-6, 2e-3).equal
    assert not _report(1e-6, cuts=(1e-5, 2e-3)).equal
    assert not _report(1e-6, identical=3).equal


def test_what_is_no_number_is_infinitely_wrong() -> None:
    right = np.ones((1, 3), np.float32)
    spoiled = np.array([[1, math.nan, 1]], np.float32)
    assert difference(spoiled, right) == math.inf
    assert difference(right, spoiled) == math.inf
    assert difference(right[:, :2], right) == math.inf
    assert beside(spoiled, right)[0] == math.inf
    assert not _report(1e-6, difference(spoiled, right)).equal


def _compared(found: Sequence[float], right: Sequence[float]) -> Report:
    """The report on one output that is also what crosses a link."""
    a, b = np.array([found], np.float32), np.array([right], np.float32)
    kind = cast(Expectation, SimpleNamespace(tolerance=1e-4, what="the original"))
    check = OneStep(cast(Client, SimpleNamespace(role=None)), kind, {}, lambda what, done, total: None)
    check.cases.append(Case("input 1", None, None, check.error(a, b)))
    return check.report([CutError("v", "a", "b", *beside(a, b))])


INF = math.inf


@pytest.mark.parametrize(
    ("found", "right"),
    [
        ([900, -INF], [1, -INF]),
        ([1, -INF], [1, 2]),
        ([1, 2], [1, -INF]),
        ([1, INF], [1, -INF]),
        ([1, -3e38], [1, -INF]),
        ([900, -3.4e38], [1, -3.4e38]),
        ([math.nan, -INF], [math.nan, -INF]),
        ([math.nan, 1], [math.nan, 1]),
    ],
)
def test_an_infinity_excuses_no_error(found: list[float], right: list[float]) -> None:
    """As in logits that are masked, with an infinity or with the lowest number of the type."""
    report = _compared(found, right)
    assert not report.equal
    assert report.cuts[0].max_abs_error is not None
    assert max(report.cuts[0].max_abs_error, report.max_abs_error) > 1
    lone = Report(report.cases, [], 1e-4, report.largest_output)
    assert not lone.equal
    assert not Report([], report.cuts, 1e-4, 1.0).equal


@pytest.mark.parametrize("fill", [-INF, INF, -3.4e38])
def test_infinities_at_equal_places_are_equal(fill: float) -> None:
    report = _compared([1, fill, 500.01], [1, fill, 500])
    assert report.equal
    assert report.largest_output == report.cuts[0].largest == 500
    assert math.isclose(report.max_abs_error, 0.01, rel_tol=0.01)


def test_the_largest_value_is_finite() -> None:
    assert largest(np.array([math.nan, -INF, -7.0, 3.0])) == 7
    assert largest(np.array([-INF])) == largest(np.array([])) == 0
    assert largest(np.array([-65504.0], np.float16)) == 65504
    assert largest(np.array([True, False])) == 1
    assert not Report([Case("a", None, None, 1.0)], [], 1e-4, INF).equal


def test_the_last_rows_of_a_longer_tensor_count() -> None:
    rows = np.random.default_rng(0).standard_normal((1, 6, 4)).astype(np.float32)
    error, size = beside(rows[:, -2:] + 1e-3, rows)
    assert math.isclose(error, 1e-3, rel_tol=0.01)
    assert size == np.abs(rows[:, -2:]).max()
    assert beside(rows[:, :2], rows)[0] > 0.1
    assert beside(rows[..., :2], rows)[0] == math.inf


def test_bits_of_bfloat16_are_compared_as_numbers() -> None:
    numbers = np.array([[[1.5, -2.0]]], np.float32)
    bits = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    types = {"hidden": TensorType("bfloat16", ("batch", "sequence", 2))}
    kind = cast(Expectation, SimpleNamespace(tolerance=1e-4, what="the original"))
    check = OneStep(cast(Client, SimpleNamespace(role=None)), kind, types, lambda what, done, total: None)
    trace = [Crossing("b", "a", step, {"hidden": bits}) for step in range(2)]
    assert check.crossed(trace)["hidden", "a", "b"].tolist() == [[[1.5, -2.0], [1.5, -2.0]]]


def test_tokens_of_half_precision_that_differ_have_a_note() -> None:
    differing, same = _report(1e-6, identical=3), _report(1e-6)
    assert "in bfloat16 the original rounds every result" in rounding_note(differing, "bfloat16")
    assert rounding_note(differing, "float32") == rounding_note(same, "float16") == ""


def test_a_token_that_is_drawn_is_no_value_to_compare() -> None:
    """It is compared as the answer; the last device of a ring sends it to the source."""
    program = (Sample("logits", "token"),)
    role = SimpleNamespace(placement=SimpleNamespace(parsed={"decode": {"b": program}}))
    kinds = {"h": TensorType("float32", (1, 1, 4)), "token": TensorType("int64", (1,))}
    check = OneStep(
        cast(Client, SimpleNamespace(role=role)),
        cast(Expectation, SimpleNamespace(tolerance=1e-4, what="the original")),
        kinds,
        lambda what, done, total: None,
    )
    trace = [
        Crossing("b", "a", 0, {"h": np.ones((1, 1, 4), np.float32)}),
        Crossing("a", "b", 0, {"token": np.array([3])}),
    ]
    assert check.cuts(trace).keys() == {("h", "a", "b")}
