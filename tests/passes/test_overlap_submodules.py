"""overlap-submodules: as many bytes as possible on both neighbours, by brute force; and what may not overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import PlanError
from partc.format.placement import stages_of
from partc.format.plan import Holding, Overlap, PlanFile
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.planner.model.problem import Device, Problem, Shared, Submodule
from passes import overlap_submodules
from passes.overlap_submodules import overlap_of
from tests.passes.models import graph

ALL = dict.fromkeys("abc", 1.0)


def problem_of(memory: Mapping[str, float], submodules: Sequence[Submodule]) -> Problem:
    devices = tuple(Device(name, size, 1.0) for name, size in memory.items())
    return Problem("latency", "a", devices, tuple(submodules), ())


def plain(*sizes: float, **times: float) -> list[Submodule]:
    return [Submodule(size, times or ALL) for size in sizes]


def shared(overlap: Overlap) -> list[tuple[int, str]]:
    """(sub-module, the neighbour that has a copy)."""
    return [(copy.submodule, copy.devices[1]) for copy in overlap.shared]


def test_what_lies_on_both_sides_of_a_border_is_movable() -> None:
    """a has room for one copy of 2 bytes, b for two of 3; the first and the last sub-module stay."""
    problem = problem_of({"a": 1 + 9 + 2, "b": 1 + 7 + 6}, plain(3, 3, 3, 2, 2, 3))
    overlap = overlap_of(problem, stages_of(["a", "a", "a", "b", "b", "b"]))
    assert shared(overlap) == [(1, "b"), (2, "b"), (3, "a")]
    assert overlap.bytes == overlap.bound_bytes == 8
    assert overlap.devices == {
        "a": Holding((1, 2, 3), (0,), 12, 12),
        "b": Holding((1, 2, 3), (4, 5), 14, 14),
    }


def test_the_last_submodule_of_an_interval_stays_however_much_memory_there_is() -> None:
    problem = problem_of({"a": 99, "b": 99, "c": 99}, plain(1, 1, 1, 1, 1))
    overlap = overlap_of(problem, stages_of(["a", "b", "b", "c", "c"]))
    assert [len(device.unmovable) for device in overlap.devices.values()] == [1, 1, 1]
    assert overlap.bytes == 2


def test_one_device_overlaps_with_nobody() -> None:
    overlap = overlap_of(problem_of({"a": 99}, plain(1, 1)), stages_of(["a", "a"]))
    assert overlap.shared == ()
    assert overlap.devices["a"].unmovable == (0, 1)


def test_a_device_gets_no_copy_of_what_it_cannot_run() -> None:
    """b could hold all of a's; it cannot run 1, so 0 and 1 stay, and 2 and 3 may go."""
    submodules = plain(1, 1, 1, 1, 1)
    submodules[1] = Submodule(1, {"a": 1.0})
    overlap = overlap_of(problem_of({"a": 5, "b": 99}, submodules), stages_of(["a", "a", "a", "a", "b"]))
    assert shared(overlap) == [(2, "b"), (3, "b")]


def test_peaks_and_shared_weights_count_as_in_the_plan() -> None:
    """A copy on b needs its 2 bytes and 3 more of peak; the embedding is there already."""
    group = Shared("embed", 10)
    submodules = [Submodule(1, ALL, 1), Submodule(2, ALL, 5, group), Submodule(1, ALL, 2, group)]
    enough = 1 + (1 + 10) + 2 + 2 + (5 - 2)
    for memory, copied in ((enough, [(1, "b")]), (enough - 1, [])):
        overlap = overlap_of(problem_of({"a": 14 + 5, "b": memory}, submodules), stages_of(["a", "a", "b"]))
        assert shared(overlap) == copied
    assert overlap_of(problem_of({"a": 99, "b": enough}, submodules), stages_of(["a", "a", "b"])).bytes == 12


def test_a_device_that_comes_again_has_its_memory_once() -> None:
    """a has room for one copy of b's three: the larger one, at the second border."""
    problem = problem_of({"a": 1 + 2 + 5, "b": 1 + 11}, plain(1, 3, 3, 5, 1))
    overlap = overlap_of(problem, stages_of(["a", "b", "b", "b", "a"]))
    assert shared(overlap) == [(3, "a")]


def test_a_copy_that_takes_no_bytes_may_take_the_peak_of_a_better_one() -> None:
    """1 shares what a has, for 3 bytes without memory; but its peak takes the place of the 5 bytes of 4."""
    group = Shared("g", 3)
    submodules = [Submodule(0, ALL, 0, group), Submodule(0, ALL, 4, group), *plain(1, 0, 5, 1)]
    problem = problem_of({"a": 1 + 3 + 5, "b": 1 + 4 + 4, "c": 1 + 6}, submodules)
    assert shared(overlap_of(problem, stages_of(["a", "b", "b", "a", "c", "c"]))) == [(4, "a")]


def test_a_copy_may_pay_for_what_another_one_shares() -> None:
    """1 alone gives 5 bytes for 3 of memory; 3 and 5, which share h, give 7 for 4."""
    g, h = Shared("g", 2), Shared("h", 3)
    submodules = [
        Submodule(0, ALL, 0, g),
        *(Submodule(3, ALL, 0, g), Submodule(0, ALL), Submodule(0, ALL, 0, h)),
        Submodule(0, ALL),
        *(Submodule(1, ALL, 0, h), Submodule(0, ALL)),
    ]
    problem = problem_of({"a": 1 + 2 + 4, "b": 1 + 8, "c": 1 + 4}, submodules)
    overlap = overlap_of(problem, stages_of(["a", "b", "b", "b", "a", "c", "c"]))
    assert {(3, "a"), (5, "a")} <= set(shared(overlap))
    assert overlap.bytes == 7


@st.composite
def plans(draw: st.DrawFn) -> tuple[Problem, list[str]]:
    """Up to eight sub-modules on three devices, any assignment, memory that leaves little or much."""
    count = draw(st.integers(2, 8))
    groups = st.none() | st.sampled_from([Shared("g", 3), Shared("h", 1)])
    names = st.sets(st.sampled_from("abc"), min_size=2)
    submodules = [
        Submodule(
            draw(st.integers(0, 4)),
            dict.fromkeys(sorted(draw(st.just({"a", "b", "c"}) | names)), 1.0),
            draw(st.integers(0, 4)),
            draw(groups),
        )
        for _ in range(count)
    ]
    # Long intervals leave a choice; some short ones make devices come again.
    assignment: list[str] = []
    for item in submodules:
        stays = assignment and assignment[-1] in item.time_s and draw(st.integers(0, 3))
        assignment.append(assignment[-1] if stays else draw(st.sampled_from(sorted(item.time_s))))
    bare = problem_of(dict.fromkeys("abc", 0.0), submodules)
    memory = {name: draw(st.integers(0, 9)) + _needs(bare, assignment, name, []) for name in "abc"}
    return problem_of(memory, submodules), assignment


def _needs(problem: Problem, assignment: Sequence[str], name: str, copies: Sequence[int]) -> float:
    held = [*(j for j, device in enumerate(assignment) if device == name), *copies]
    return 1.0 + problem.memory_of(held) if held else 1.0


def all_overlaps(problem: Problem, assignment: Sequence[str]) -> Iterator[dict[str, list[int]]]:
    """Every legal choice: device → the copies that it gets."""
    intervals = stages_of(assignment)
    choices = [range(right.first - left.first) for left, right in pairwise(intervals)]
    backwards = [range(right.last - right.first + 1) for _, right in pairwise(intervals)]
    for forth in product(*choices):
        for back in product(*backwards):
            copies: dict[str, list[int]] = {name: [] for name in assignment}
            for (left, right), ahead, behind in zip(pairwise(intervals), forth, back, strict=True):
                copies[right.device] += range(right.first - ahead, right.first)
                copies[left.device] += range(right.first, right.first + behind)
            if _legal(problem, assignment, copies):
                yield copies


def _legal(problem: Problem, assignment: Sequence[str], copies: Mapping[str, list[int]]) -> bool:
    taken = [j for own in copies.values() for j in own]
    stays = all(
        any(j not in taken for j in range(interval.first, interval.last + 1))
        for interval in stages_of(assignment)
    )
    runs = all(name in problem.submodules[j].time_s for name, own in copies.items() for j in own)
    fits = all(
        _needs(problem, assignment, name, own) <= problem.device_of[name].memory_bytes
        for name, own in copies.items()
    )
    return len(taken) == len(set(taken)) and stays and runs and fits


def size(problem: Problem, indices: Sequence[int]) -> float:
    parts = [problem.submodules[j] for j in indices]
    return sum(part.memory_bytes + (part.shared.bytes if part.shared else 0) for part in parts)


@given(plans())
def test_no_legal_overlap_has_more_bytes(plan: tuple[Problem, list[str]]) -> None:
    problem, assignment = plan
    overlap = overlap_of(problem, stages_of(assignment))
    found: dict[str, list[int]] = {name: [] for name in assignment}
    for j, name in shared(overlap):
        found[name].append(j)
    assert _legal(problem, assignment, found)
    every = [[j for own in copies.values() for j in own] for copies in all_overlaps(problem, assignment)]
    most = max((size(problem, taken), len(taken)) for taken in every)
    assert (overlap.bytes, len(overlap.shared)) == most
    assert overlap.bound_bytes == most[0]
    for name, device in overlap.devices.items():
        assert device.needed_bytes == _needs(problem, assignment, name, found[name])
        assert device.needed_bytes <= device.available_bytes
        own = {j for j, holder in enumerate(assignment) if holder == name}
        assert set(device.movable) | set(device.unmovable) == own | set(found[name])
        assert not set(device.movable) & set(device.unmovable)


def test_a_cut_search_states_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """One label at a time is greedy: it takes 3 at the first border and has no room for 4 at the second."""
    problem = problem_of({"a": 1 + 2 + 4, "b": 1 + 9}, plain(1, 3, 2, 4, 1))
    assignment = ["a", "b", "b", "b", "a"]
    best = overlap_of(problem, stages_of(assignment))
    assert best.bytes == best.bound_bytes == 4
    monkeypatch.setattr(overlap_submodules, "MAX_LABELS", 1)
    cut = overlap_of(problem, stages_of(assignment))
    assert cut.bytes < 4 <= cut.bound_bytes


def test_large_rings_are_quick() -> None:
    sizes = [float(1 + j * 7 % 13) for j in range(600)]
    names = [f"d{j * 3 // 600}" for j in range(600)]
    times = dict.fromkeys(names, 1.0)
    devices = tuple(Device(name, 900.0 + sum(sizes[:200])) for name in times)
    problem = Problem("latency", "d0", devices, tuple(plain(*sizes, **times)), ())
    overlap = overlap_of(problem, stages_of(names))
    assert overlap.bytes == overlap.bound_bytes > 1800


def test_plans_that_say_too_little() -> None:
    module = graph("""
        input %x: f32[8]
        submodule 0
        %a: f32[8] = Relu(%x)
        output %a
    """)
    alone = PlanFile.from_json({"answer": {"assignment": ["a"]}})
    for plan, message in ((None, "there is no plan"), (alone, "does not say")):
        module.plan = plan
        with pytest.raises(PlanError, match=message):
            run_passes(module, load_passes("map-dependencies,overlap-submodules"))
