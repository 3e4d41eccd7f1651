"""Further borders: where they lie, how many a device gets, and what is copied for them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from partc.format.placement import stages_of
from partc.format.plan import Overlap
from partc.planner.model.movable import with_borders
from partc.planner.model.problem import Device, Problem, Submodule
from passes.overlap_submodules import overlap_of


def problem_of(count: int, names: str = "abc", memory: float = 1000, storage: float | None = None) -> Problem:
    parts = tuple(Submodule(1, dict.fromkeys(names, 1.0), disk_bytes=1) for _ in range(count))
    return Problem("latency", names[0], tuple(Device(n, memory, 0, storage) for n in names), parts, ())


def moved(assignment: str, most: int, **options: float) -> Overlap:
    problem = problem_of(len(assignment), **options)  # type: ignore[arg-type]
    stages = stages_of(assignment)
    return with_borders(problem, stages, overlap_of(problem, stages), most, {})


def test_borders_lie_evenly_over_what_may_leave() -> None:
    overlap = moved("aaaaaaabb", 3)
    assert overlap.borders == (1, 3, 5, 8)
    assert overlap.copies == {"b": (1, 2, 3, 4, 5, 6), "a": (7,)}
    assert overlap.texts == (
        "sub-modules 1-2, 3-4, 5-6 may move from a to b: 6 B more disk on b",
        "sub-module 7 may move from b to a: 1 B more disk on a",
    )


def test_one_border_lets_all_go_that_may() -> None:
    assert moved("aaaaaaabb", 1).borders == (1, 8)


def test_a_device_in_the_middle_divides_its_borders() -> None:
    """a has room for 3 of b's sub-modules 2 to 8; one stays, and c may have the others."""
    problem = replace(problem_of(11), devices=(Device("a", 5), Device("b", 7), Device("c", 99)))
    stages = stages_of("aabbbbbbbcc")
    overlap = with_borders(problem, stages, overlap_of(problem, stages), 3, {})
    assert overlap.borders == (4, 5, 6)
    assert overlap.copies == {"a": (2, 3, 4), "c": (6, 7, 8)}


def test_nothing_is_cut_where_nothing_may_leave() -> None:
    overlap = moved("aaabbb", 3, memory=3)
    assert (overlap.borders, overlap.copies) == ((), {})
    assert [text.partition(",")[0] for text in overlap.texts] == [
        "nothing may move: each device keeps a sub-module"
    ]
    assert moved("aaa", 3).texts == ("nothing may move: all sub-modules are on a",)
    assert moved("aaabbb", 3, storage=3).texts == (
        "nothing may move: no disk of a neighbour has room for copies (`storage`)",
    )


def test_copies_keep_to_the_storage() -> None:
    problem = replace(problem_of(9), devices=(Device("a", 99), Device("b", 99, 0, 4), Device("c", 99)))
    stages = stages_of("aaaaaaabb")
    overlap = with_borders(problem, stages, overlap_of(problem, stages), 3, {})
    assert overlap.copies["b"] == (5, 6)
    again = with_borders(problem, stages, overlap_of(problem, stages), 3, {"b": (0, 1)})
    assert "b" not in again.copies


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=14), st.integers(1, 3))
def test_each_device_has_at_most_so_many(names: list[str], most: int) -> None:
    assignment = "a" + "".join(names)
    overlap = moved(assignment, most)
    stages = stages_of(assignment)
    for name in set(assignment):
        inner = [
            border
            for stage in stages
            if stage.device == name
            for border in overlap.borders
            if stage.first < border <= stage.last
        ]
        assert len(inner) <= most
    allowed = {(copy.submodule, copy.devices[1]) for copy in overlap.shared}
    assert {(j, name) for name, copies in overlap.copies.items() for j in copies} <= allowed


def test_what_lies_there_already_takes_no_more_disk() -> None:
    problem, stages = problem_of(4), stages_of("aabb")
    overlap = with_borders(problem, stages, overlap_of(problem, stages), 1, {"a": (2,)})
    assert "sub-module 2 may move from b to a: no more disk on a" in overlap.texts
