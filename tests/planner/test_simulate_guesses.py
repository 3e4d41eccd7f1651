"""One request with guessed tokens in the simulator: beside the formula, and step by step."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace

import pytest

from partc.errors import PlanError
from partc.planner.model.drafted import drafted_token_s
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Drafts
from partc.planner.simulate.case import Case
from partc.planner.simulate.guesses import simulate_guesses
from partc.planner.simulate.result import Simulation
from tests.planner.test_drafted import ring

Prices = tuple[tuple[int, float], ...]
CHEAP: Prices = ((2, 1.06), (4, 1.25), (8, 1.5))


def case_of(seconds: tuple[float, ...], latency_s: float, prices: Prices = ()) -> Case:
    """A ring whose links are fast."""
    problem, stages = ring(seconds, latency_s, Drafts(0.0, prices))
    fast = tuple(replace(link, bandwidth_bytes_per_s=1000.0) for link in problem.links)
    return Case(replace(problem, links=fast), stages)


def off(case: Case, found: Simulation) -> float:
    """Time per token by that of the formula, for the share that came true."""
    decode = evaluate(case.problem, case.stages).phases[0]
    assert found.pace_s is not None and found.drafted is not None
    return found.pace_s / drafted_token_s(case.problem, decode, found.drafted.share)


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("latency_s", [0.01, 0.5])
@pytest.mark.parametrize("seconds", [(1.0, 1.0), (1.0, 1.0, 1.0), (2.0, 3.0, 1.0)])
def test_guesses_ahead_take_as_long_as_the_formula_says(
    seconds: tuple[float, ...], latency_s: float, chance: float
) -> None:
    case = case_of(seconds, latency_s)
    found = simulate_guesses(case, 400, chance)
    assert 0.94 < off(case, found) < 1.06
    assert found.drafted is not None
    assert found.drafted.share == pytest.approx(chance, abs=0.12)
    assert len(found.token_s[0]) == 400


def test_latency_alone_is_filled_with_eight_steps() -> None:
    case = case_of((1.0, 1.0, 1.0), 20.0)
    found = simulate_guesses(case, 400, 1.0)
    assert off(case, found) == pytest.approx(1.0, abs=0.05)
    # Between two wrong ones the seven are nearer to each other than the eighth part of a lap.
    assert 0.8 < off(case, simulate_guesses(case, 400, 0.9)) < 1.0


@pytest.mark.parametrize(
    ("chance", "low", "high"), [(0.0, 1.0, 1.0), (0.3, 1.0, 1.06), (0.9, 1.0, 1.12), (1.0, 0.97, 1.03)]
)
def test_one_device_has_guesses_beside_its_tokens(chance: float, low: float, high: float) -> None:
    case = case_of((1.0,), 0.0, CHEAP)
    found = simulate_guesses(case, 400, chance)
    assert low - 1e-9 <= off(case, found) <= high + 1e-9
    assert all(span.guess == "" for span in found.spans), "no step begins with a guess"
    assert found.drafted is not None
    assert (found.drafted.guessed > 0) == (chance > 0)


def test_dear_rows_are_not_taken() -> None:
    case = case_of((1.0,), 0.0, ((2, 1.9), (8, 7.0)))
    found = simulate_guesses(case, 100, 0.5)
    assert found.drafted is not None
    assert found.drafted.guessed == 0


def test_without_right_drafts_a_request_takes_as_long_as_without_guesses() -> None:
    case = case_of((2.0, 3.0, 1.0), 0.5)
    found = simulate_guesses(case, 50, 0.0)
    laps = {round(b - a, 9) for a, b in itertools.pairwise(found.token_s[0])}
    assert laps == {round(evaluate(case.problem, case.stages).phases[0].latency_s, 9)}


def test_nothing_computes_two_steps_at_once_and_right_guesses_bring_tokens() -> None:
    case = case_of((2.0, 3.0, 1.0), 0.5, CHEAP)
    found = simulate_guesses(case, 60, 0.7, jitter=0.2, seed=3)
    by_device = defaultdict(list)
    for span in found.spans:
        by_device[span.device].append((span.start_s, span.end_s))
    for times in by_device.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(sorted(times)))
    assert list(found.token_s[0]) == sorted(found.token_s[0])
    assert {span.guess for span in found.spans} == {"", "right", "void"}
    assert found == simulate_guesses(case, 60, 0.7, jitter=0.2, seed=3)
    assert found != simulate_guesses(case, 60, 0.7, jitter=0.2, seed=4)
    drafted = found.to_json()["drafted"]
    assert isinstance(drafted, dict) and found.drafted is not None
    assert drafted["share"] == found.drafted.share
    assert found.drafted.rows_per_token == 1 + (drafted["guessed"] - drafted["right"]) / 60


def test_a_prompt_goes_first() -> None:
    case = case_of((1.0, 1.0), 0.5)
    decode = case.problem.phases[0]
    prompt = replace(decode, name="prefill", time_s=({"a": 10.0}, {"b": 20.0}))
    long = replace(case, problem=replace(case.problem, phases=(prompt, decode)))
    found = simulate_guesses(long, 4, 1.0)
    assert found.first_token_s == pytest.approx(31.002)
    assert [span.guess for span in found.spans if span.phase == "prefill"] == ["", ""]
    assert found.token_s[0][0] == simulate_plan_s(long)


def simulate_plan_s(case: Case) -> float:
    """The first token of a request without guesses."""
    return evaluate(case.problem, case.stages).phases[0].latency_s


def test_where_nothing_is_guessed_nothing_is_followed() -> None:
    case = case_of((1.0, 1.0), 0.5)
    with pytest.raises(PlanError, match="its model or its batch allows none"):
        simulate_guesses(replace(case, problem=replace(case.problem, drafts=None)), 4, 0.5)
