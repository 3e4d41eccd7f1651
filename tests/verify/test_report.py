"""Verdicts: what is no number is not equal, and every case counts, not only the first."""

from __future__ import annotations

import math

import numpy as np

from partc.verify.compare import difference, nearest
from partc.verify.report import Case, CutError, Report


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
    assert nearest(spoiled, [right])[0] == math.inf
    assert not _report(1e-6, difference(spoiled, right)).equal


def test_the_nearest_tensor_of_the_same_sizes_is_found() -> None:
    rng = np.random.default_rng(0)
    seen = [rng.standard_normal((1, 6, 4)).astype(np.float32) for _ in range(5)]
    error, largest = nearest(seen[3][:, -2:] + 1e-3, seen)
    assert math.isclose(error, 1e-3, rel_tol=0.01)
    assert largest == np.abs(seen[3][:, -2:]).max()
