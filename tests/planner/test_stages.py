"""Stages: their list of devices, the messages between them, and the programs that they come to."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from partc.format.placement import Stage, assignment_of, stages_of
from partc.format.program import Run, Sample, print_program
from partc.planner.model.stages import (
    SOURCE,
    Step,
    borders_of,
    cut_into_pieces,
    held,
    part_name,
    pieces_in,
    places_of,
    programs_of,
    route,
)  # fmt: skip

NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)


@given(NAMES)
def test_stages_are_the_runs_of_equal_devices(names: list[str]) -> None:
    stages = stages_of(names)
    assert assignment_of(stages) == tuple(names)
    assert [j for stage in stages for j in stage.indices] == list(range(len(names)))
    assert all(a.device != b.device for a, b in itertools.pairwise(stages))
    assert {name: [j for j, other in enumerate(names) if other == name] for name in names} == held(stages)


def test_a_stage_of_several_devices_has_no_assignment() -> None:
    stages = (Stage((0, 1), ("a",)), Stage((2, 3), ("a", "b"), "heads"))
    assert assignment_of(stages) is None


@given(NAMES, st.data())
def test_a_value_goes_once_to_each_device_that_reads_it(names: list[str], data: st.DataObject) -> None:
    stages, count = stages_of(names), len(names)
    makers = data.draw(st.lists(st.integers(0, count - 1), max_size=5))
    uses = [
        (f"v{number}", maker, reader)
        for number, maker in enumerate(makers)
        for reader in data.draw(st.lists(st.integers(maker, count - 1), max_size=4))
    ]
    places = places_of(stages)
    sent = [
        (value, stages[receiver].device, sender, receiver)
        for (sender, receiver), values in route(stages, uses).items()
        for value in values
    ]
    assert len({item[:2] for item in sent}) == len(sent)
    for value, device, sender, receiver in sent:
        readers = [places[reader] for name, _, reader in uses if name == value]
        assert receiver == min(place for place in readers if stages[place].device == device)
        assert stages[sender].device != device
    wanted = {(value, names[reader]) for value, maker, reader in uses if names[reader] != names[maker]}
    assert {item[:2] for item in sent} == wanted


@given(NAMES, st.sets(st.integers(0, 12)))
def test_pieces_are_cut_at_the_borders_of_all_placements(names: list[str], borders: set[int]) -> None:
    stages = stages_of(names)
    pieces = cut_into_pieces(stages, borders)
    assert assignment_of(pieces) == tuple(names)
    inner = {j for j in borders if 0 < j < len(names)}
    assert borders_of([pieces]) == borders_of([stages]) | inner
    numbers = [pieces_in(stage, pieces) for stage in stages]
    assert [number for some in numbers for number in some] == list(range(len(pieces)))
    assert not borders or len(cut_into_pieces(stages, ())) == len(stages)


def test_a_stage_of_two_pieces_receives_first_and_sends_last() -> None:
    stages = stages_of("aab")
    runs = [[Run("part_0", (), ("h",)), Run("part_1", ("h",), ("i",))], [Run("part_2", ("i",), ("o",))]]
    programs = programs_of(stages, Step(runs, {(0, 1): ["i"], (1, SOURCE): ["o"]}, ("o",)))
    assert print_program(programs["a"]).splitlines() == [
        "run part_0 () -> (h)",
        "run part_1 (h) -> (i)",
        "send i to b",
        "recv o from b",
        "emit o",
    ]


def test_the_programs_of_a_ring_that_returns() -> None:
    """The source receives for its second stage, and at the end for the client."""
    stages = stages_of("aabac")
    runs = [[Run(part_name(place), (f"in{place}",), (f"out{place}",))] for place in range(len(stages))]
    messages = {(0, 1): ["h"], (0, 3): ["skip"], (1, 2): ["i"], (2, 3): ["j"], (3, SOURCE): ["token"]}
    step = Step(runs, messages, ("token",), {3: Sample("out3", "token")})
    assert {
        device: print_program(program).splitlines() for device, program in programs_of(stages, step).items()
    } == {
        "a": [
            "run part_0 (in0) -> (out0)",
            "send h to b",
            "send skip to c",
            "recv i from b",
            "run part_2 (in2) -> (out2)",
            "send j to c",
            "recv token from c",
            "emit token",
        ],
        "b": ["recv h from a", "run part_1 (in1) -> (out1)", "send i to a"],
        "c": [
            "recv skip from a",
            "recv j from a",
            "run part_3 (in3) -> (out3)",
            "sample out3 -> token",
            "send token to a",
        ],
    }
