from __future__ import annotations

from partc.format.placement import stages_of
from partc.planner.model.problem import Device, Problem, Shared, Submodule
from tests.living.promises import needed


def problem(shared: Shared | None = None) -> Problem:
    """Three sub-modules of 10 bytes, with activations of 3; the runner of `a` takes 1, that of `b` 2, of `c` 4."""
    parts = tuple(Submodule(10.0, {"a": 1.0, "b": 1.0, "c": 1.0}, 3.0, shared) for _ in range(3))
    devices = tuple(Device(name, 100.0, overhead) for name, overhead in (("a", 1.0), ("b", 2.0), ("c", 4.0)))
    return Problem("latency", "a", devices, parts, ())


def test_a_placement_alone() -> None:
    assert needed(problem(), [stages_of("aab")]) == {"a": 24.0, "b": 15.0, "c": 4.0}


def test_a_device_has_the_pieces_of_both_placements_at_once() -> None:
    assert needed(problem(), [stages_of("aab"), stages_of("abb")])["a"] == 24.0
    assert needed(problem(), [stages_of("aab"), stages_of("aba")]) == {"a": 34.0, "b": 25.0, "c": 4.0}


def test_placements_that_do_not_follow_each_other_are_not_added_up() -> None:
    history = [stages_of("aab"), stages_of("abb"), stages_of("aaa")]
    assert needed(problem(), history)["b"] == 25.0
    assert needed(problem(), history[1:2])["a"] == 14.0


def test_shared_weights_count_once() -> None:
    assert (
        needed(problem(Shared("table", 50.0)), [stages_of("aab"), stages_of("abb")])["b"] == 2 + 20 + 3 + 50
    )
