"""Fleets: kinds of devices, rings for a demand against brute force, and arrivals in the simulator."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.config.demand import Demand, Wish
from partc.config.devices import DeviceConfig, DevicesConfig, Link
from partc.errors import PlanError
from partc.format.plan import OBJECTIVES
from partc.planner.exact.optimal import find_best
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.problem import Device, Edge, Phase, Problem, Submodule
from partc.planner.model.problem import Link as ProblemLink
from partc.planner.rings.kinds import Kind, kinds_of
from partc.planner.rings.make import plan_fleet
from partc.planner.simulate.case import simulate
from partc.planner.simulate.demand import Load
from partc.planner.simulate.script import workflow_of

pytestmark = pytest.mark.in_turns(2)

SLOTS = 3


def draw(seed: int) -> tuple[Problem, list[Kind], Demand]:
    """3-5 devices of up to three kinds on equal links, 3-5 sub-modules that few devices can hold alone, 1-2 wishes."""
    rng = random.Random(seed)
    count, parts = rng.randint(3, 5), rng.randint(3, 5)
    figures = [(rng.choice([2, 3, 5, 9]), rng.uniform(0.5, 2)) for _ in range(rng.randint(1, 3))]
    kind_of = [rng.randrange(len(figures)) for _ in range(count)]
    names = [f"d{i}" for i in range(count)]
    members = [
        tuple(n for n, k in zip(names, kind_of, strict=True) if k == kind) for kind in range(len(figures))
    ]
    work = [rng.uniform(0.5, 2) for _ in range(parts)]

    def phase(name: str, weight: float, factor: float) -> Phase:
        times = tuple(
            {n: factor * seconds * figures[k][1] for n, k in zip(names, kind_of, strict=True)}
            for seconds in work
        )
        edges = tuple(Edge(j, j + 1, 1.0, f"v{j}") for j in range(parts - 1))
        return Phase(name, weight, times, edges, 0.5)

    problem = Problem(
        "latency",
        names[0],
        tuple(Device(n, figures[k][0]) for n, k in zip(names, kind_of, strict=True)),
        tuple(Submodule(1, {}) for _ in range(parts)),
        tuple(
            ProblemLink(a, b, rng_bandwidth, 0.1)
            for rng_bandwidth in [4.0]
            for a, b in itertools.permutations(names, 2)
        ),
        phases=(phase("prefill", 0.25, 3.0), phase("decode", 0.75, 1.0)),
    )
    wishes = tuple(
        Wish(
            rate_per_s=rng.uniform(0.005, 0.04),
            prompt=10,
            answer=4,
            first_token_s=rng.choice([None, rng.uniform(8, 30)]),
            per_token_s=rng.choice([None, rng.uniform(3, 10)]),
        )
        for _ in range(rng.randint(1, 2))
    )
    kinds = sorted((Kind(names) for names in members if names), key=lambda kind: kind.name)
    return problem, kinds, Demand(wishes, utilisation=rng.choice([0.5, 1.0]))


def capacity(problem: Problem, result: Evaluation, wish: Wish) -> float | None:
    """Requests per second from the specification: the busiest lane, the slots; None where it is too slow."""
    first, later = (timeline.latency_s for timeline in result.phases)
    if wish.first_token_s is not None and first > wish.first_token_s:
        return None
    if wish.per_token_s is not None and later > wish.per_token_s:
        return None
    busy: dict[str, float] = {}
    for timeline, steps in zip(result.phases, (1, wish.answer - 1), strict=True):
        for stage in timeline.stages:
            busy[stage.device] = busy.get(stage.device, 0.0) + steps * stage.seconds
        for sent in timeline.messages:
            name = f"{sent.sender}->{sent.receiver}"
            busy[name] = busy.get(name, 0.0) + steps * sent.seconds
    return min(1 / max(busy.values()), SLOTS / (first + (wish.answer - 1) * later))


def brute_rings(problem: Problem, wish: Wish) -> dict[frozenset[str], float]:
    """Devices → the most requests per second of a ring of all of them, with any of them as the source."""
    found: dict[frozenset[str], float] = {}
    names = list(problem.device_of)
    for size in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, size):
            for source, objective in itertools.product(chosen, OBJECTIVES):
                devices = tuple(device for device in problem.devices if device.name in chosen)
                part = replace(problem, source=source, devices=devices, objective=objective)
                solution = find_best(part)
                if solution is None or len(solution.stages) < size:
                    continue
                rate = capacity(part, evaluate(part, solution.stages), wish)
                if rate is not None:
                    found[frozenset(chosen)] = max(rate, found.get(frozenset(chosen), 0.0))
    return found


def partitions(names: Sequence[str]) -> Iterator[list[frozenset[str]]]:
    """Every way to form disjoint rings of some of the devices."""
    if not names:
        yield []
        return
    first, *rest = names
    yield from partitions(rest)  # it stays idle
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            left = [name for name in rest if name not in others]
            for further in partitions(left):
                yield [frozenset((first, *others)), *further]


def brute_fleet(problem: Problem, demand: Demand) -> tuple[int | None, float]:
    """The fewest devices that answer the demand, None without any; and the largest part of it that can be answered."""
    rings = [brute_rings(problem, wish) for wish in demand.wishes]
    fewest, most = None, 0.0
    for formed in partitions(list(problem.device_of)):
        for serves in itertools.product(range(len(demand.wishes)), repeat=len(formed)):
            if any(ring not in rings[wish] for ring, wish in zip(formed, serves, strict=True)):
                continue
            parts = [
                demand.utilisation
                * sum(rings[w][ring] for ring, w in zip(formed, serves, strict=True) if w == index)
                / wish.rate_per_s
                for index, wish in enumerate(demand.wishes)
            ]
            most = max(most, min(parts))
            used = sum(map(len, formed))
            if min(parts) >= 1 - 1e-9 and (fewest is None or used < fewest):
                fewest = used
    return fewest, most


@cache
def brute_seed(seed: int) -> tuple[int | None, float]:
    problem, _, demand = draw(seed)
    return brute_fleet(problem, demand)


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("seed", range(12))
def test_a_fleet_has_as_few_devices_as_by_brute_force(seed: int) -> None:
    problem, kinds, demand = draw(seed)
    fewest, most = brute_seed(seed)

    def problems(_: Wish, source: str) -> Problem:
        return replace(problem, source=source)

    count = len(problem.devices)
    if fewest is None:
        with pytest.raises(PlanError) as caught:
            plan_fleet(demand, kinds, count, problems, SLOTS, "demand.yaml")
        if "of it" in caught.value.message:
            assert f"{most:.1%} of it" in caught.value.message
        else:
            assert most == 0, "there is no ring for some wish, or not for all at once"
        return
    fleet = plan_fleet(demand, kinds, count, problems, SLOTS, "demand.yaml")
    assert (fleet.devices, fleet.bound, fleet.gap) == (fewest, fewest, 0)
    held = [name for group in fleet.groups for ring in group.rings for name in ring]
    assert len(held) == len(set(held)) == fleet.devices, "no device is in two rings"
    assert {*held, *fleet.left_over} == set(problem.device_of)
    assert all(
        line.capacity_per_s * demand.utilisation >= line.rate_per_s * (1 - 1e-6) for line in fleet.wanted
    )


@pytest.mark.in_turns(4)
def test_the_random_fleets_are_of_both_kinds() -> None:
    possible = [brute_seed(seed)[0] for seed in range(12)]
    assert 3 <= sum(found is not None for found in possible) <= 11


def test_what_cannot_be_says_what_can() -> None:
    problem, kinds, _ = draw(0)
    count, wish = len(problem.devices), Wish(0.001, 10, 4)

    def refused(demand: Demand, most: int, room: float = 9) -> PlanError:
        devices = tuple(replace(device, memory_bytes=room) for device in problem.devices)
        with pytest.raises(PlanError) as caught:
            plan_fleet(
                demand,
                kinds,
                most,
                lambda _, name: replace(problem, source=name, devices=devices),
                SLOTS,
                "demand.yaml",
            )
        return caught.value

    assert "at most 1 devices has room" in refused(Demand((wish,)), 1, room=1).message
    many = refused(Demand((wish,) * (count + 1)), 1)
    assert "a ring for each line" in many.message
    assert f"of line {count + 1} alone" in (many.hint or "")
    assert "the closest" in (refused(Demand((replace(wish, first_token_s=1e-3),)), count).hint or "")


@pytest.mark.parametrize("rate", [1e-9, 1e-6])
def test_the_rarest_requests_have_a_ring(rate: float) -> None:
    problem, kinds, _ = draw(0)
    demand = Demand((Wish(rate, 10, 4), Wish(0.001, 10, 4)))
    fleet = plan_fleet(demand, kinds, 2, lambda _, name: replace(problem, source=name), SLOTS, "demand.yaml")
    assert [line.rings for line in fleet.wanted] == [1, 1]


def _devices(**links: Link) -> DevicesConfig:
    same = {name: DeviceConfig(name, "ort", "aarch64", 1e9, 1e9, 1000) for name in "abc"}
    other = DeviceConfig("d", "ort", "aarch64", 2e9, 1e9, 1000, address="10.0.0.1:5555")
    ends = {(pair[0], pair[1]): link for pair, link in links.items()}
    return DevicesConfig("a", {**same, "d": other}, default_link=Link(1e6, 0.001), links=ends)


def _members(devices: DevicesConfig) -> list[str]:
    return ["".join(kind.members) for kind in kinds_of(devices)]


def test_devices_are_of_one_kind_where_they_can_change_places() -> None:
    quick = Link(9e6, 0.001)
    assert _members(_devices()) == ["abc", "d"]
    assert _members(_devices(ab=Link(1e6, 0.001))) == ["abc", "d"], "the default, written out"
    assert _members(_devices(ab=quick)) == ["a", "b", "c", "d"]
    assert _members(_devices(ab=quick, ba=quick)) == ["ab", "c", "d"]
    assert _members(_devices(ad=quick, bd=quick)) == ["ab", "c", "d"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 40), min_size=1, max_size=6), st.integers(1, 3))
def test_requests_that_come_one_by_one_are_a_queue(times: list[float], slots: int) -> None:
    """One device: tokens are served in turns; nobody is served before coming, and no second is wasted."""
    problem = Problem("latency", "a", (Device("a", 9),), (Submodule(1, {"a": 2.0}),), ())
    arrivals = tuple(sorted(times))
    solution = find_best(problem)
    assert solution is not None
    work = workflow_of(problem, solution.stages)
    found = simulate(work, Load(len(arrivals), 3, "no-bubbles", slots, arrivals_s=arrivals))
    free = 0.0
    for came in arrivals:
        free = max(free, came) + 3 * 2.0
    assert found.makespan_s == pytest.approx(free), "the device works whenever somebody is there"
    assert all(tokens[0] >= came + 2.0 - 1e-9 for tokens, came in zip(found.token_s, arrivals, strict=True))
    if slots == 1:
        starts = [tokens[0] for tokens in found.token_s]
        assert starts == sorted(starts)
        assert found.first_token_s == pytest.approx(
            sum(t - came for t, came in zip(starts, arrivals, strict=True)) / len(starts)
        )


@pytest.mark.slow
def test_a_thousand_devices_take_less_than_a_minute() -> None:
    """Four kinds of 250; the demand needs half of them."""
    speeds = {"a": 1.0, "b": 2.0, "c": 3.5, "d": 0.4}
    names = [f"{kind}{i}" for kind in speeds for i in range(5)]
    work = [0.01 + 0.001 * (j % 3) for j in range(24)]

    def phase(name: str, weight: float, factor: float) -> Phase:
        times = tuple({n: factor * seconds / speeds[n[0]] for n in names} for seconds in work)
        edges = tuple(Edge(j, j + 1, 4096.0, f"v{j}") for j in range(len(work) - 1))
        return Phase(name, weight, times, edges, 8)

    problem = Problem(
        "latency", "a0", tuple(Device(n, 11) for n in names), tuple(Submodule(1, {}) for _ in work),
        tuple(ProblemLink(a, b, 12.5e6, 0.002) for a, b in itertools.permutations(names, 2)),
        phases=(phase("prefill", 0.02, 8.0), phase("decode", 0.98, 1.0)),
    )  # fmt: skip
    kinds = [Kind(tuple(f"{kind}{i}" for i in range(250))) for kind in speeds]
    wishes = Wish(60, 100, 40, first_token_s=6), Wish(25, 40, 60, per_token_s=0.5)
    began = sum(os.times()[:4])
    fleet = plan_fleet(
        Demand(wishes), kinds, 5, lambda _, source: replace(problem, source=source), 4, "demand.yaml"
    )
    assert sum(os.times()[:4]) - began < 60, (
        "seconds of processors, the solver's too: others may compute meanwhile"
    )
    assert fleet.devices > 500
    assert fleet.gap < 0.01
