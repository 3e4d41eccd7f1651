"""Copies for the loss of a device: against every choice of small problems, and what is said of each loss."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from partc.errors import PlanError
from partc.format.placement import Stages, stages_of
from partc.format.plan import Objective, Survival
from partc.planner.exact.solution import cost_of
from partc.planner.model.change import with_devices
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Problem, Shared, Submodule
from partc.planner.solve import solve
from partc.planner.survive import options
from partc.planner.survive.copies import missing_storage
from partc.planner.survive.losses import survive_one

PROBLEMS = int(os.environ.get("PARTC_RANDOM_PROBLEMS", "60"))
NAMES = "abcd"
Disks = Mapping[str, frozenset[int]]


def draw(seed: int) -> Problem:
    """3-4 devices, 3-5 sub-modules, a tied weight, little memory and, on some, little storage."""
    rng = random.Random(seed)
    names, count = NAMES[: rng.choice([3, 3, 4])], rng.randint(3, 5)
    parts = tuple(
        Submodule(
            memory_bytes=(size := rng.randint(1, 4)) + 1,
            time_s={name: rng.uniform(0.2, 4) for name in names if rng.random() < 0.97},
            shared=Shared("embed", 2) if j in (0, count - 1) and seed % 2 else None,
            disk_bytes=size,
        )
        for j in range(count)
    )
    need = sum(part.memory_bytes for part in parts)
    devices = tuple(
        Device(
            name,
            rng.uniform(need / 3, need * 1.1) + 2,
            0,
            rng.choice([None, rng.uniform(need / 2, need * 1.5)]),
        )
        for name in names
    )
    links = tuple(
        Link(a, b, rng.choice([1.0, 4.0]), rng.choice([0.0, 0.5]))
        for a, b in itertools.permutations(names, 2)
    )
    edges = tuple(Edge(j, j + 1, rng.randint(0, 3), f"v{j}") for j in range(count - 1))
    objective: Objective = rng.choice(["latency", "throughput"])
    return Problem(objective, "a", devices, parts, links, edges, 1, returns=0)


def with_storage(problem: Problem, more: Mapping[str, float]) -> Problem:
    """The problem with so much more storage; a little besides for rounding."""
    devices = [
        replace(device, storage_bytes=(device.storage_bytes or 0) + more[device.name] + 1e-6)
        if device.name in more
        else device
        for device in problem.devices
    ]
    return replace(problem, devices=tuple(devices))


def held(names: Sequence[str]) -> dict[str, frozenset[int]]:
    return {name: frozenset(j for j, other in enumerate(names) if other == name) for name in set(names)}


def plans(problem: Problem) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every feasible assignment of one interval a device, with its cost."""
    for names in itertools.product(problem.device_of, repeat=len(problem.submodules)):
        stages = stages_of(names)
        value = evaluate(problem, stages).value if len(stages) == len(set(names)) else None
        if value is not None:
            yield names, cost_of(problem, value)


def joined(first: Disks, second: Disks) -> dict[str, frozenset[int]]:
    empty = frozenset[int]()
    return {name: first.get(name, empty) | second.get(name, empty) for name in {*first, *second}}


def fits(problem: Problem, disks: Disks) -> bool:
    limits = {device.name: device.storage_bytes for device in problem.devices}
    return all(
        (limit := limits[name]) is None or problem.disk_of(have) <= limit for name, have in disks.items()
    )


def size(problem: Problem, disks: Disks, own: Disks) -> float:
    return sum(problem.disk_of(have) - problem.disk_of(own.get(name, ())) for name, have in disks.items())


def without(problem: Problem, lost: str) -> Problem:
    return with_devices(problem, [name for name in problem.device_of if name != lost])


def least(problem: Problem, own: Disks, lost: Sequence[str]) -> float | None:
    """The fewest bytes of copies by which each loss has a plan."""
    ways = [[held(names) for names, _ in plans(without(problem, name))] for name in lost]
    found = []
    for choice in itertools.product(*ways):
        disks: Disks = own
        for holding in choice:
            disks = joined(disks, holding)
        if fits(problem, disks):
            found.append(size(problem, disks, own))
    return min(found, default=None)


def check(problem: Problem, stages: Stages, survival: Survival) -> None:
    """The copies are what the plans run, fit, and each plan is the best one over what lies on the disks."""
    own = held([stage.device for stage in stages for _ in stage.indices])
    disks = joined(own, {name: frozenset(more) for name, more in survival.copies.items()})
    assert fits(problem, disks)
    assert survival.bytes == pytest.approx(size(problem, disks, own))
    for loss in survival.losses:
        if loss.assignment is None:
            continue
        on_disk = [
            cost
            for names, cost in plans(without(problem, loss.device))
            if all(indices <= disks.get(name, frozenset()) for name, indices in held(names).items())
        ]
        assert cost_of(problem, loss.value or 0) == pytest.approx(min(on_disk))


def test_survivors_may_return_where_they_must() -> None:
    """a holds what the first and the last sub-module share, and none other has room for that."""
    shared = Shared("embed", 10)
    parts = tuple(
        Submodule(1, {"a": 1.0, "b": 0.5, "c": 0.5}, shared=shared if j in (0, 3) else None, disk_bytes=1)
        for j in range(4)
    )
    devices = (Device("a", 12), Device("b", 2), Device("c", 2))
    links = tuple(Link(one, other, 100.0, 0.1) for one, other in itertools.permutations("abc", 2))
    edges = tuple(Edge(j, j + 1, 1, f"v{j}") for j in range(3))
    problem = Problem("latency", "a", devices, parts, links, edges, 1)
    stages = solve(problem, explained=False).stages
    assert stages == stages_of(["a", "b", "b", "a"]) or stages == stages_of(["a", "c", "c", "a"])
    (loss,) = survive_one(problem, stages, str.__eq__).losses
    assert loss.assignment == tuple("abba".replace("b", "c" if loss.device == "b" else "b"))
    (fatal,) = survive_one(replace(problem, returns=0), stages, str.__eq__).losses
    assert fatal.assignment is None


def test_the_least_disk_of_every_choice() -> None:
    kinds = {"survived": 0, "storage": 0, "fatal": 0}
    for seed in range(PROBLEMS):
        problem = draw(seed)
        stages = solve(problem, explained=False).stages
        if stages is None or len(stages) < 2:
            continue
        own = held([stage.device for stage in stages for _ in stage.indices])
        unlimited = replace(problem, devices=tuple(replace(d, storage_bytes=None) for d in problem.devices))
        losses = list(dict.fromkeys(stage.device for stage in stages if stage.device != "a"))
        possible = [name for name in losses if any(plans(without(unlimited, name)))]
        expected = least(problem, own, possible)
        try:
            found = survive_one(problem, stages, str.__eq__)
        except PlanError as error:
            assert expected is None, error
            more = missing_storage(problem, own)
            assert all(name in error.message for name in more)
            survive_one(with_storage(problem, more), stages, str.__eq__)
            kinds["storage"] += 1
            continue
        assert expected is not None
        assert found.bytes == pytest.approx(expected)
        assert found.bound_bytes == pytest.approx(expected)
        assert [loss.device for loss in found.losses if loss.assignment] == [
            n for n in losses if n in possible
        ]
        check(problem, stages, found)
        kinds["survived" if possible else "fatal"] += 1
    assert min(kinds.values()) > 0, kinds


def three(storage: float | None = None) -> tuple[Problem, Stages]:
    """Six equal sub-modules on three equal devices, two on each."""
    parts = tuple(Submodule(10, dict.fromkeys("abc", 1.0), disk_bytes=8) for _ in range(6))
    devices = tuple(Device(name, 45, 0, storage) for name in "abc")
    links = tuple(Link(a, b, 10.0, 0.1) for a, b in itertools.permutations("abc", 2))
    edges = tuple(Edge(j, j + 1, 1.0) for j in range(5))
    return Problem("throughput", "a", devices, parts, links, edges, returns=0), stages_of("aabbcc")


def test_every_lost_submodule_is_copied_once() -> None:
    survival = survive_one(*three(), same_tokens=lambda old, new: True)
    assert survival.bytes == survival.bound_bytes == 4 * 8
    lost_b, lost_c = survival.losses
    assert lost_b.assignment == tuple("aaaccc")
    assert lost_b.bytes == {"a": 8, "c": 8}
    assert lost_c.assignment in (tuple("aabbbb"), tuple("aaabbb"))
    assert lost_b.text == (
        "if b is lost: 0.3333 steps/s on a and c; 8 B more disk on a; 8 B more disk on c; the same tokens"
    )
    assert lost_b.predicted is not None


def test_loading_takes_as_long_as_the_slowest_disk() -> None:
    """a and c have to read 8 bytes each when b is lost; of c it is not known how long that takes."""
    problem, stages = three()
    first, _ = survive_one(problem, stages, lambda old, new: True, reads={"a": 4.0, "c": 2.0}).losses
    assert first.load_s == 4.0
    assert "; 4.00 s to load it; " in first.text
    assert survive_one(problem, stages, lambda old, new: True, reads={"a": 4.0}).losses[0].load_s is None


def test_names_of_many_devices() -> None:
    parts = tuple(Submodule(10, dict.fromkeys("abcd", 1.0), disk_bytes=8) for _ in range(4))
    links = tuple(Link(a, b, 1e9, 0.0) for a, b in itertools.permutations("abcd", 2))
    edges = tuple(Edge(j, j + 1, 1.0) for j in range(3))
    problem = Problem("throughput", "a", tuple(Device(name, 20) for name in "abcd"), parts, links, edges)
    (*_, lost_d) = survive_one(problem, stages_of("abcd"), same_tokens=lambda old, new: True).losses
    assert "on a, b and c" in lost_d.text


def test_other_devices_may_say_something_else() -> None:
    (first, _) = survive_one(*three(), same_tokens=lambda old, new: (old, new) != ("b", "c")).losses
    assert not first.same_tokens
    assert first.text.endswith("tokens may differ from there on, what was said stays")


def test_storage_that_stands_in_the_way_is_an_error() -> None:
    with pytest.raises(PlanError, match="the loss of c cannot be survived") as caught:
        survive_one(*three(storage=24), same_tokens=lambda old, new: True, where="devices.yaml")
    assert caught.value.where == "devices.yaml"
    assert "storage" in (caught.value.hint or "")
    assert "; 8 B more storage on b would do for every loss" in caught.value.message
    assert survive_one(*three(storage=32), same_tokens=lambda old, new: True).bytes == 32


def test_a_loss_that_no_device_can_take_has_its_reason() -> None:
    problem, stages = three()
    small = replace(problem, devices=tuple(replace(device, memory_bytes=25) for device in problem.devices))
    survival = survive_one(small, stages, same_tokens=lambda old, new: True)
    assert [loss.assignment for loss in survival.losses] == [None, None]
    assert survival.losses[0].text.startswith("if b is lost, nothing helps: memory: the model needs 60 B")
    assert survival.copies == {}


def test_the_source_alone_has_nothing_to_lose() -> None:
    problem, _ = three()
    survival = survive_one(problem, stages_of("aaaaaa"), same_tokens=lambda old, new: True)
    assert (survival.losses, survival.bytes) == ((), 0)
    assert survival.text == (
        "no loss to survive: the source a computes all sub-modules, and the ring ends with it"
    )


def test_large_problems_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "MOST_PLANS", 1)
    survival = survive_one(*three(), same_tokens=lambda old, new: True)
    assert survival.bytes >= survival.bound_bytes == 32
    assert all(loss.assignment for loss in survival.losses)


def test_the_plan_itself_respects_storage() -> None:
    problem, _ = three(storage=16)
    stages = solve(problem, explained=False).stages
    assert stages is not None
    assert {stage.last - stage.first for stage in stages} == {1}
    assert "of storage" in evaluate(problem, stages_of("aaabbb")).violations[0]
    reason = solve(three(storage=12)[0], explained=False).constraint
    assert reason == "storage: the weights, 48 B in all, do not fit the disks; the least is 12 B (a)"
