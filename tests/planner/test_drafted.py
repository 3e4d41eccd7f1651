"""Guessed tokens: the time of one by hand, the best plan by brute force, the plans that are best for more of them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from partc.errors import PlanError, UserError
from partc.format.placement import Stage, Stages, stages_of
from partc.planner.exact.optimal import plan_optimal, seek_best
from partc.planner.exact.solution import Best
from partc.planner.exact.tables import Forced
from partc.planner.explain.drafted import better_plans, drafted_text
from partc.planner.model.effort import QUESTION, QUICK
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Drafts, Edge, Link, Phase, Problem, Submodule
from partc.planner.model.problem_json import problem_json, read_problem
from partc.planner.solve import STRATEGIES, solve
from tests.planner.small_problems import draw_small

SHARES = (0.1, 0.5, 0.9, 1.0)
PRICES: tuple[tuple[tuple[int, float], ...], ...] = ((), ((2, 1.1), (8, 1.7)), ((2, 1.1), (8, 6.0)))


def ring(
    seconds: tuple[float, ...] = (2.0, 3.0, 1.0), latency_s: float = 0.5, drafts: Drafts | None = None
) -> tuple[Problem, Stages]:
    """A sub-module on each device; messages of one byte, which take a second, and 8 bytes of memory each."""
    names = "abcde"[: len(seconds)]
    count = len(seconds)
    problem = Problem(
        "latency",
        "a",
        tuple(Device(name, 8) for name in names),
        tuple(Submodule(8, {}) for _ in names),
        tuple(Link(a, b, 1.0, latency_s) for a, b in itertools.permutations(names, 2)),
        phases=(
            Phase(
                "decode",
                1.0,
                tuple({names[at]: seconds[at]} for at in range(count)),
                tuple(Edge(at, at + 1, 1, f"v{at}") for at in range(count - 1)),
                1,
            ),
        ),
        returns=0,
        drafts=drafts or Drafts(0.5),
    )
    return problem, tuple(Stage((at, at), (name,)) for at, name in enumerate(names))


def test_guesses_ahead_take_the_time_of_the_slowest_stage() -> None:
    problem, stages = ring()
    # A lap: 2 + 3 + 1 and three messages of 1.5; the slowest computes for 3, and steps leave 1.05 times as far apart.
    assert evaluate(problem, stages).value == pytest.approx(0.5 * 10.5 + 0.5 * 3.15)
    full = replace(problem, drafts=Drafts(1.0))
    assert evaluate(full, stages).value == pytest.approx(3.15)
    assert evaluate(replace(problem, drafts=Drafts(0.0)), stages).value == pytest.approx(10.5)


def test_a_link_is_a_stage_for_as_long_as_it_sends() -> None:
    problem, stages = ring((0.1, 0.2, 0.1), latency_s=1.0, drafts=Drafts(1.0))
    assert evaluate(problem, stages).value == pytest.approx(1.05)


def test_where_one_stage_is_nearly_the_lap_there_is_no_time_for_guesses() -> None:
    problem, stages = ring((2.0, 8.0), latency_s=0.0, drafts=Drafts(0.5))
    assert evaluate(problem, stages).value == pytest.approx(12.0)
    problem, stages = ring((5.0, 6.0), latency_s=0.0, drafts=Drafts(0.5))
    assert evaluate(problem, stages).value == pytest.approx(0.5 * 13 + 0.5 * 6.3)


def test_no_more_than_eight_steps_are_under_way() -> None:
    problem, stages = ring(latency_s=100.0, drafts=Drafts(1.0))
    assert evaluate(problem, stages).value == pytest.approx((6.0 + 3 + 300) / 8)


def test_guesses_beside_a_token_cost_what_their_rows_do() -> None:
    problem, stages = ring((4.0,), drafts=Drafts(0.5, ((2, 1.2), (8, 1.7))))
    # 0.5 steps a token, each with one guess: a row costs 0.7 / 7 of the first.
    assert evaluate(problem, stages).value == pytest.approx(0.5 * 4.0 * 1.1)
    assert evaluate(replace(problem, drafts=Drafts(1.0, ((8, 1.7),))), stages).value == pytest.approx(
        4 * 1.7 / 8
    )
    assert evaluate(replace(problem, drafts=Drafts(1.0)), stages).value == pytest.approx(4.0)
    several, apart = ring(drafts=Drafts(0.5, ((8, 1.0),)))
    assert evaluate(several, apart).value == pytest.approx(0.5 * 10.5 + 0.5 * 3.15), (
        "in a ring they are ahead"
    )


def test_a_throughput_has_no_time_for_guesses() -> None:
    problem, stages = ring()
    full = replace(problem, objective="throughput")
    assert full.drafted == 0.0
    assert evaluate(full, stages).value == evaluate(replace(full, drafts=None), stages).value


def brute(problem: Problem) -> float | None:
    """The least value over all assignments that the problem allows."""
    found = []
    for names in itertools.product(problem.device_of, repeat=len(problem.submodules)):
        stages = stages_of(names)
        if problem.returns is None or len(stages) - len(set(names)) <= problem.returns:
            found.append(evaluate(problem, stages).value)
    return min((value for value in found if value is not None), default=None)


def drawn(seed: int, residuals: bool, latency_s: float) -> Problem:
    problem = draw_small(seed, "latency", residuals)
    return replace(
        problem,
        returns=0,
        links=tuple(replace(link, latency_s=link.latency_s + latency_s) for link in problem.links),
        drafts=Drafts(SHARES[seed % 4], PRICES[seed // 4 % 3]),
    )


@pytest.mark.parametrize("latency_s", [0.0, 1.0, 8.0])
@pytest.mark.parametrize("residuals", [False, True], ids=["chain", "residuals"])
def test_the_best_plan_is_that_of_brute_force(residuals: bool, latency_s: float) -> None:
    feasible = unproven = 0
    for seed in range(32):
        problem = drawn(seed, residuals, latency_s)
        best, least = seek_best(problem), brute(problem)
        assert (best.solution is None) == (least is None)
        if best.solution is None or least is None:
            continue
        bound = best.solution.bound or 0.0
        assert best.solution.value == pytest.approx(least)
        assert bound <= least * (1 + 1e-9)
        assert best.proven == (bound == best.solution.value)
        feasible, unproven = feasible + 1, unproven + (not best.proven)
    # Where the best lap has no time for guesses, another plan, with a longer lap, might have.
    assert feasible > 8
    assert unproven <= 3


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_that_returns_is_beyond_the_bound(seed: int) -> None:
    problem = replace(draw_small(seed, "latency", True), drafts=Drafts(SHARES[seed % 4]))
    least = brute(problem)
    for effort in (QUICK, QUESTION):
        best = seek_best(problem, effort=effort)
        if best.solution is not None and best.solution.bound is not None:
            assert least is not None
            assert best.solution.bound <= least * (1 + 1e-9)
            assert best.solution.value >= least * (1 - 1e-9)


@pytest.mark.parametrize("seed", [4, 5, 7, 8])
def test_where_nothing_but_copies_counts_the_slowest_stage_is_all(seed: int) -> None:
    problem = replace(draw_small(seed, "latency", True), returns=0)
    alone = replace(problem, phases=(replace(problem.phases[1], weight=1.0),), drafts=Drafts(1.0))
    best, least = seek_best(alone), brute(alone)
    assert best.proven
    assert (best.solution.value if best.solution else None) == (least and pytest.approx(least))


def balanced() -> Problem:
    """A fast device and a slow link to another: alone it has the shorter lap, together they make more tokens."""
    count = 8
    phases = (
        Phase(
            "decode",
            1.0,
            tuple({"fast": 1.0, "other": 1.2} for _ in range(count)),
            tuple(Edge(at, at + 1, 1, f"v{at}") for at in range(count - 1)),
            1,
        ),
    )
    links = tuple(Link(a, b, 100.0, 1.0) for a, b in itertools.permutations(("fast", "other"), 2))
    devices = Device("fast", 100), Device("other", 100)
    parts = tuple(Submodule(1, {}) for _ in range(count))
    return Problem("latency", "fast", devices, parts, links, phases=phases, returns=0, drafts=Drafts())


def test_towards_copies_the_best_plan_is_that_of_the_throughput() -> None:
    problem = balanced()
    for share, used in ((0.0, {"fast"}), (0.1, {"fast"}), (1.0, {"fast", "other"})):
        plan = plan_optimal(replace(problem, drafts=Drafts(share)))
        assert plan.gap == 0
        assert {stage.device for stage in plan.stages or ()} == used
    copies = plan_optimal(replace(problem, drafts=Drafts(1.0)))
    assert copies.stages == plan_optimal(replace(problem, objective="throughput")).stages


def test_a_plan_names_the_one_that_is_better_for_copies() -> None:
    problem = balanced()
    plan = solve(problem)
    assert plan.explain["drafts"] == [
        {
            "share": 1.0,
            "token_s": pytest.approx(5.04),
            "assignment": ["fast"] * 4 + ["other"] * 4,
            "text": "planned for it (`workload: {drafted: 1}`), a token takes 5.04 s where the answer is a copy, "
            "not 8.00 s: 0-3 on fast, 4-7 on other",
        }
    ]
    assert "drafts" not in solve(replace(problem, drafts=None)).explain
    assert "drafts" not in solve(replace(problem, drafts=Drafts(1.0))).explain or all(
        each["share"] != 1.0 for each in solve(replace(problem, drafts=Drafts(1.0))).explain["drafts"]
    )
    assert (
        better_plans(replace(problem, objective="throughput"), evaluate(problem, plan.stages or ()), never)
        == {}
    )


def never(problem: Problem, forced: Forced | None) -> Best:
    raise AssertionError("a throughput asks for no plan")


def test_sentences_say_what_guesses_bring() -> None:
    problem, stages = ring(drafts=Drafts(0.25))
    predicted = evaluate(problem, stages).predicted
    assert [each.share for each in predicted.drafts] == [0.1, 0.25, 0.3, 1.0]
    assert drafted_text(predicted) == (
        "with drafts, the prompt apart: 9.77 s per token where 10 % of the tokens are guessed right, 8.66 s at "
        "25 %, 8.29 s at 30 %, 3.15 s where the answer is a copy"
    )
    alone, one = ring((4.0,))
    assert drafted_text(evaluate(alone, one).predicted) == ""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_has_a_true_value_or_refuses(strategy: str) -> None:
    problem = replace(draw_small(5, "latency", False), returns=0, drafts=Drafts(0.5, PRICES[1]))
    if strategy in ("optimal-groups", "galaxy", "megatron", "sequence-parallel"):
        with pytest.raises(PlanError, match="plans for no guessed tokens"):
            solve(problem, strategy)
        return
    plan, best = solve(problem, strategy, explained=False), plan_optimal(problem)
    if plan.stages is not None:
        assert plan.value == pytest.approx(evaluate(problem, plan.stages).value)
        assert best.value is not None and plan.value is not None and plan.bound is not None
        assert plan.bound <= best.value * (1 + 1e-9) <= plan.value * (1 + 2e-9)


def test_json_gives_back_the_same_problem() -> None:
    for drafts in (Drafts(), Drafts(0.3), Drafts(1.0, ((2, 1.5), (8, 4.0)))):
        problem, _ = ring(drafts=drafts)
        assert read_problem(problem_json(problem)) == problem


@pytest.mark.parametrize(
    ("drafts", "message"),
    [
        ({"share": 1.5}, "expected a share of tokens from 0 to 1, found 1.5"),
        ({"shares": 1}, "shares"),
        ({"share": 0.5, "step_tokens": [[1, 1.0]]}, r"found a list of 2|found"),
        ({"share": 0.5, "step_tokens": [[8, 2.0], [2, 1.5]]}, "ascending"),
        ({"share": 0.5, "step_tokens": [[2, 3.0]]}, "ascending"),
        ({"share": 0.5, "step_tokens": 7}, "found"),
    ],
)
def test_what_cannot_be_is_refused(drafts: dict[str, object], message: str) -> None:
    data = problem_json(ring()[0])
    with pytest.raises(UserError, match=message):
        read_problem({**data, "drafts": drafts})


def test_several_sequences_are_not_guessed() -> None:
    with pytest.raises(UserError, match="one sequence alone"):
        read_problem({**problem_json(ring()[0]), "batch": 2})
