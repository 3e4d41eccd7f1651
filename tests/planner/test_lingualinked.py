"""LinguaLinked's Eq. 5 against all assignments of small problems, and what happens when the solver fails."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from partc.errors import InternalError
from partc.format.placement import assignment_of, stages_of
from partc.format.plan import OBJECTIVES, Objective
from partc.planner.baselines import solver_process
from partc.planner.baselines.assignment_solver import solve_programme
from partc.planner.baselines.lingualinked import plan_lingualinked
from partc.planner.exact.optimal import find_best, without_returns
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Problem, Submodule
from partc.planner.model.problem_json import problem_json
from partc.planner.solve import solve
from tests.planner.small_problems import draw_small

SEEDS = range(30)


def assignments(problem: Problem) -> Iterator[tuple[str, ...]]:
    """All that meet the constraints."""
    rest = itertools.product(problem.device_of, repeat=len(problem.submodules) - 1)
    plans = ((problem.source, *names) for names in rest)
    return (names for names in plans if evaluate(problem, stages_of(names)).feasible)


def spent(problem: Problem, names: tuple[str, ...]) -> dict[str, float]:
    """Weighted seconds of each device and link, as Eq. 5 counts them."""
    total: dict[str, float] = {}

    def spend(who: str, seconds: float) -> None:
        total[who] = total.get(who, 0.0) + seconds

    for phase in problem.steps:
        for j, name in enumerate(names):
            spend(name, phase.weight * phase.time_s[j][name])
        sent = {
            (edge.value or str(number), edge.sender, names[edge.receiver]): edge.bytes
            for number, edge in enumerate(phase.edges)
            if names[edge.sender] != names[edge.receiver]
        }
        for (_, sender, receiver), size in sent.items():
            rate = problem.link_of[names[sender], receiver].bandwidth_bytes_per_s
            spend(f"{names[sender]}->{receiver}", phase.weight * size / rate)
        for j in {edge.sender for edge in phase.edges if edge.receiver == edge.sender + 1}:
            if names[j] != names[j + 1]:
                link = problem.link_of[names[j], names[j + 1]]
                spend(f"{names[j]}->{names[j + 1]}", phase.weight * link.latency_s)
        if names[-1] != problem.source:
            link = problem.link_of[names[-1], problem.source]
            spend(f"{names[-1]}->{problem.source}", phase.weight * link.seconds(phase.return_bytes))
    return total


def eq5(problem: Problem, names: tuple[str, ...]) -> float:
    """The programme's objective, in seconds."""
    values = spent(problem, names).values()
    return sum(values) if problem.objective == "latency" else max(values)


def seconds(problem: Problem, names: tuple[str, ...]) -> float:
    """The true latency, or the true largest busy time."""
    value = evaluate(problem, stages_of(names)).value
    assert value is not None
    return value if problem.objective == "latency" else 1 / value


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("residuals", [False, True])
def test_the_programme_equals_a_search_over_all_assignments(objective: Objective, residuals: bool) -> None:
    solved = 0
    for seed in SEEDS:
        problem = draw_small(seed, objective, residuals)
        answer = solve_programme(problem, None, 60.0)
        plans = list(assignments(problem))
        assert answer.proven, seed
        if not plans:
            assert answer.assignment is None, seed
            continue
        solved += 1
        assert answer.assignment is not None, seed
        found = tuple(answer.assignment)
        assert found in plans, seed
        assert eq5(problem, found) == pytest.approx(min(eq5(problem, names) for names in plans), rel=1e-6), (
            seed
        )
        best = min(seconds(problem, names) for names in plans)
        if objective == "throughput" or not residuals:
            assert answer.bound_s is not None, seed
        if not residuals:
            assert seconds(problem, found) == pytest.approx(best, rel=1e-6), seed
        if answer.bound_s is not None:
            assert answer.bound_s <= best * (1 + 1e-6), seed
    assert solved >= 10


def test_the_start_changes_nothing() -> None:
    solved = 0
    for seed in SEEDS:
        problem = draw_small(seed, "latency", True)
        best = find_best(problem)
        if best is not None:
            answers = [solve_programme(problem, start, 60.0) for start in (None, assignment_of(best.stages))]
            values = [eq5(problem, tuple(answer.assignment or ())) for answer in answers]
            assert values[0] == pytest.approx(values[1], rel=1e-6)
            solved += 1
    assert solved >= 10


def test_a_graph_that_is_no_chain_has_no_bound() -> None:
    problem = draw_small(1, "latency", False)
    broken = tuple(replace(phase, edges=phase.edges[1:]) for phase in problem.phases)
    roomy = replace(problem, phases=broken, devices=tuple(Device(d.name, 1e9) for d in problem.devices))
    assert solve_programme(roomy, None, 60.0).bound_s is None


def back_and_forth() -> Problem:
    """`a` is fast at the first and third sub-module, `b` at the second; residual from the first to the last."""
    times = ({"a": 1.0, "b": 9.0}, {"a": 9.0, "b": 1.0}, {"a": 1.0, "b": 9.0}, {"a": 9.0, "b": 1.0})
    return Problem(
        objective="latency",
        source="a",
        devices=(Device("a", 9), Device("b", 9)),
        submodules=tuple(Submodule(1, known) for known in times),
        links=(Link("a", "b", 10.0, 0.1), Link("b", "a", 10.0, 0.1)),
        edges=(*(Edge(j, j + 1, 1, f"v{j}") for j in range(3)), Edge(0, 3, 1, "v0")),
        return_bytes=1,
    )


def test_a_device_may_be_used_again() -> None:
    problem = back_and_forth()
    plan = solve(problem, "lingualinked")
    assert plan.assignment == ("a", "b", "a", "b") and len(stages_of(plan.assignment)) == 4
    # Four sub-modules of 1 s, three messages and the way back of 0.2 s; v0 reaches b once and stays there.
    assert plan.value == pytest.approx(4.8) and plan.bound == plan.value and plan.gap == 0.0
    assert "its optimum" in plan.method
    best, alone = solve(problem).value, solve(without_returns(problem)).value
    assert best == plan.value and alone is not None and best is not None and alone > best
    busy = solve(replace(problem, objective="throughput"), "lingualinked")
    # Each device 2 s or less on the links: that is all that two of four sub-modules of 1 s can come to.
    assert busy.value == pytest.approx(1 / 2) and busy.gap == 0.0


def test_a_residual_is_paid_although_it_costs_nothing() -> None:
    links = tuple(Link(x, y, 10.0, 0.1) for x, y in itertools.permutations("abc", 2))
    times = ({"a": 1.0}, {"a": 3.0, "b": 3.0}, {"c": 1.0})
    problem = Problem(
        objective="latency",
        source="a",
        devices=tuple(Device(name, 9) for name in "abc"),
        submodules=tuple(Submodule(1, known) for known in times),
        links=links,
        edges=(Edge(0, 1, 1), Edge(1, 2, 1), Edge(0, 2, 20)),
        return_bytes=1,
    )
    # By way of b: 1 + 0.2 + 3 + 0.2 + 1 + 0.2 s; meanwhile the residual has taken its 2.1 s.
    best = solve(problem)
    assert best.assignment == ("a", "b", "c") and best.value == pytest.approx(5.6)
    # Eq. 5 adds the residual's 2 s to either plan, and then a message less is better.
    plan = solve(problem, "lingualinked")
    assert plan.assignment == ("a", "a", "c") and plan.value == pytest.approx(1 + 3 + 2.2 + 1 + 0.2)
    assert "its optimum" in plan.method
    # The bound without the residual: 1 + 3 + 0.2 + 1 + 0.2.
    assert plan.bound == pytest.approx(5.4) and plan.gap == pytest.approx(2 / 7.4)


def test_costs_beyond_what_the_solver_takes() -> None:
    problem = back_and_forth()
    links = tuple(replace(link, bandwidth_bytes_per_s=1e-30) for link in problem.links)
    for objective in OBJECTIVES:
        plan = solve(replace(problem, links=links, objective=objective), "lingualinked")
        best = solve(replace(problem, links=links, objective=objective))
        # Any message takes ages: all on the source.
        assert plan.stages == best.stages == stages_of("aaaa") and "its optimum" in plan.method


def test_no_assignment_at_all_is_explained() -> None:
    problem = back_and_forth()
    small = replace(problem, devices=(Device("a", 1), Device("b", 2)))
    plan = solve(small, "lingualinked")
    assert not plan.feasible and plan.constraint is not None
    assert "the model needs" in plan.constraint


FAILURES = {
    "killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed (SIGKILL)"),
    "hanging": ("import time; time.sleep(60)", "did not end within 0.2 s and was stopped"),
    "no solver": ("import no_such_solver", "failed: ModuleNotFoundError: No module named 'no_such_solver'"),
    "silent failure": ("raise SystemExit(3)", "failed: exit code 3"),
    "garbage": ("print('solved!')", "wrote no answer that can be read"),
    "nothing": ("", "wrote no answer that can be read"),
    "other keys": ("print('{}')", "an answer of the wrong form"),
    "wrong form": (
        """print('{"assignment": "abab", "proven": true, "bound_s": 1}')""", "an answer of the wrong form"
    ),
    "bound without a number": (
        """print('{"assignment": null, "proven": false, "bound_s": NaN}')""", "wrote no answer that can be read"
    ),
    "false proof": (
        """print('{"assignment": null, "proven": true, "bound_s": null}')""", "the solver for LinguaLinked"
    ),
    "unknown device": (
        """print('{"assignment": ["a", "z", "a", "b"], "proven": true, "bound_s": 1}')""",
        "gave an impossible plan: unknown device z",
    ),
    "gave up": (
        """print('{"assignment": null, "proven": false, "bound_s": 1, "status": "time limit reached"}')""",
        "the solver for LinguaLinked's Eq. 5 found no plan (time limit reached)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_plan_comes_out_whatever_the_solver_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, words = FAILURES[name]
    monkeypatch.setattr(solver_process, "_GRACE_S", 0.5)
    problem = back_and_forth()
    plan = plan_lingualinked(problem, limit_s=0.2, solver=[sys.executable, "-c", program])
    best = find_best(problem)
    assert best is not None and plan.stages == best.stages and plan.value == best.value
    assert words in plan.method and best.method in plan.method


def test_a_bug_in_the_process_of_the_solver_is_a_bug() -> None:
    """Our own `assignment_solver` fails on a request that it was never made for."""
    with pytest.raises(InternalError, match="KeyError: 'limit_s'"):
        solver_process.ask_solver({"problem": problem_json(back_and_forth()), "start": None}, 10.0)


def test_a_solver_that_cannot_be_started() -> None:
    plan = plan_lingualinked(back_and_forth(), solver=["/nowhere/solver"])
    assert plan.feasible and "the solver for LinguaLinked's Eq. 5 cannot be started" in plan.method


def test_without_a_solver_and_without_a_plan_of_intervals() -> None:
    problem = back_and_forth()
    parts = tuple(
        replace(part, time_s={name: part.time_s[name]})
        for part, name in zip(problem.submodules, "abab", strict=True)
    )
    only = replace(problem, submodules=parts)
    assert not solve(without_returns(only)).feasible
    assert solve(only, "lingualinked").assignment == solve(only).assignment == ("a", "b", "a", "b")
    failing = [sys.executable, "-c", "raise SystemExit(1)"]
    assert plan_lingualinked(only, solver=failing).assignment == ("a", "b", "a", "b")
    plan = plan_lingualinked(without_returns(only), solver=failing)
    assert not plan.feasible and plan.constraint is not None
    assert "no plan was found" in plan.constraint and "the solver failed" in plan.constraint


def test_the_solver_reads_and_writes_json() -> None:
    problem = back_and_forth()
    request: dict[str, object] = {"problem": problem_json(problem), "start": None, "limit_s": 10.0}
    answer = solver_process.ask_solver(json.loads(json.dumps(request)), 10.0)
    assert answer.assignment == ["a", "b", "a", "b"] and answer.proven
    assert answer.bound_s is not None and answer.bound_s <= 4.8 * (1 + 1e-6)
