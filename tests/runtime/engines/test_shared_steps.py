"""Shared steps that are computed in groups of requests, and what keeps the kernels of one from taking a row of many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from partc.format.build import Submodule, TensorType
from partc.format.dtypes import Array
from partc.format.kernel_plan import KernelTensor
from partc.runtime.engines.plan import PlanEngine
from partc.runtime.engines.plan_shared import _offset
from partc.runtime.engines.shared_steps import run_apart, run_in_groups

MODULE = Submodule("p", "", (), ("h", "index"), ("out", "count"))
TYPES = {
    "h": TensorType("float32", ("batch", "sequence", 2)),
    "index": TensorType("int64", ("sequence",)),
    "out": TensorType("float32", (2, "batch*sequence")),
    "count": TensorType("int64", ("sequence",)),
}
H = np.arange(10, dtype=np.float32).reshape(5, 1, 2)
INDEX = np.array([7])


def doubled(slots: Sequence[int], inputs: Sequence[Array]) -> list[Array]:
    """Each column of `out` has what its row of `h` has, and its slot added."""
    h, index = inputs
    assert (len(h), index.tolist()) == (len(slots), [7])
    return [h[:, 0].T + np.array(slots, np.float32), index]


@pytest.mark.parametrize("groups", [[5], [4, 1], [2, 2, 1], [1, 1, 1, 1, 1]], ids=str)
def test_groups_are_put_together_in_their_order(groups: list[int]) -> None:
    out, count = run_in_groups(MODULE, TYPES, groups, (3, 0, 4, 1, 2), [H, INDEX], doubled)
    np.testing.assert_array_equal(out, [[3, 2, 8, 7, 10], [4, 3, 9, 8, 11]])
    assert count.tolist() == [7], "what has no rows is the same for all"


def test_requests_one_after_the_other_have_sizes_of_their_own() -> None:
    called: list[tuple[int, int]] = []

    def run(slot: int, inputs: Sequence[Array], dims: object) -> list[Array]:
        assert isinstance(dims, dict)
        called.append((slot, dims["batch"]))
        return doubled([slot], inputs)

    out, _ = run_apart(MODULE, TYPES, (3, 0, 4, 1, 2), [H, INDEX], {"batch": 5, "sequence": 1}, run)
    np.testing.assert_array_equal(out, [[3, 2, 8, 7, 10], [4, 3, 9, 8, 11]])
    assert called == [(3, 1), (0, 1), (4, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("have", "count", "groups"),
    [([1, 2, 3, 4], 7, [4, 3]), ([1, 2, 3, 4, 8], 6, [4, 2]), ([1, 2], 5, [2, 2, 1]), ([1], 3, [1, 1, 1])],
)
def test_as_many_requests_at_once_as_there_is_code_for(
    have: list[int], count: int, groups: list[int]
) -> None:
    engine = PlanEngine.__new__(PlanEngine)
    engine._together = {"p": have}
    assert engine._groups("p", count) == groups


@pytest.mark.parametrize(
    ("one", "many", "offset"),
    [
        ((1, 64), (3, 64), 2 * 256),
        ((2, 64), (6, 64), 2 * 512),
        ((1,), (3,), 2 * 4),
        ((5, 3), (5, 3), 0),  # it has no rows
        ((64, 1), (64, 3), None),  # rows are no pieces of memory
        ((1, 3), (3, 3), None),  # vectors would not be aligned
        ((1, 64), (3, 65), None),
    ],
)
def test_where_a_row_lies(one: tuple[int, ...], many: tuple[int, ...], offset: int | None) -> None:
    assert _offset(KernelTensor("float32", one), KernelTensor("float32", many), 2, 3) == offset
