"""Stages: their list of devices, and the messages between them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from partc.format.placement import Stage, assignment_of, stages_of
from partc.planner.model.stages import (
    held,
    places_of,
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
