"""Bounds of chains: no plan of a chain costs less, whatever its shares and exchanges."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from partc.format.plan import Exchange
from partc.planner.exact.solution import cost_of
from partc.planner.groups.algorithm1 import apportion
from partc.planner.groups.chain_bounds import ChainBounds
from partc.planner.groups.chains import EXCHANGES, Chain, Shares, chains, kinds_of, stages_of_chain
from partc.planner.groups.evaluate import evaluate_shared
from partc.planner.model.problem import Problem
from tests.planner.group_problems import draw_small
from tests.planner.shared_problems import draw_shared

Draw = Callable[[int], Problem]


def draw_shares(rng: random.Random, problem: Problem, segments: Chain) -> list[Shares]:
    """Any units for each member of each group; or those that keep all equally busy, which come near the bound."""
    found: list[Shares] = []
    for segment in segments:
        kinds = kinds_of(problem, segment) if len(segment.group) > 1 else {}
        if rng.random() < 0.5:
            times = problem.steps[0].time_s[1]
            speeds = [1 / times[name] for name in segment.group]
            found.append({kind: tuple(apportion(n, speeds)) for kind, n in kinds.items()})
            continue
        cuts = {kind: sorted(rng.randint(0, n) for _ in segment.group[1:]) for kind, n in kinds.items()}
        found.append(
            {
                kind: tuple(b - a for a, b in zip([0, *ends], [*ends, kinds[kind]], strict=True))
                for kind, ends in cuts.items()
            }
        )
    return found


def ratios(draw: Draw, seeds: range, most_chains: int = 12, plans: int = 4) -> list[float]:
    """The cost of random plans by the bound that covers them."""
    found = []
    for seed in seeds:
        rng, problem = random.Random(seed), draw(seed)
        # Memory is in the bounds by the sum of a segment alone: with enough of it every plan counts.
        roomy = tuple(replace(device, memory_bytes=1e9) for device in problem.devices)
        problem = replace(problem, devices=roomy, objective=rng.choice(["latency", "throughput"]))
        bounds, every = ChainBounds(problem), list(chains(problem))
        for segments in rng.sample(every, min(len(every), most_chains)):
            for _ in range(plans):
                shares = draw_shares(rng, problem, segments)
                phases = {
                    phase.name: stages_of_chain(problem, segments, shares, draw_exchanges(rng, segments))
                    for phase in problem.steps
                }
                value = evaluate_shared(problem, phases).value
                if value is not None:
                    found.append(cost_of(problem, value) / bounds.cost(segments))
    return found


def draw_exchanges(rng: random.Random, segments: Chain) -> list[Exchange]:
    return [rng.choice(EXCHANGES) if len(segment.group) > 1 else "none" for segment in segments]


@pytest.mark.parametrize("draw", [draw_small, draw_shared])
def test_no_plan_costs_less_than_the_bound_that_covers_it(draw: Draw) -> None:
    found = ratios(draw, range(60))
    assert len(found) > 500 and min(found) >= 1 - 1e-9
    assert min(found) < 1.1, "a bound of nothing would hold, too"


@pytest.mark.slow
@pytest.mark.parametrize("draw", [draw_small, draw_shared])
def test_no_plan_costs_less_in_many_problems(draw: Draw) -> None:
    assert min(ratios(draw, range(60, 2000))) >= 1 - 1e-9
