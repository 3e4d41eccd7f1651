"""Plans of every kind that a report must be able to show, solved from made-up problems."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from partc.format.placement import stages_of
from partc.format.plan import Objective, Plan, plain
from partc.planner.groups.evaluate import evaluate_plan
from partc.planner.model.evaluate import evaluate
from partc.planner.model.plan_file import plan_file
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Shared, Submodule
from partc.planner.model.problem_json import read_problem
from partc.planner.simulate import simulate_plan
from partc.planner.solve import solve
from passes.overlap_submodules import overlap_of
from tests.planner.shared_problems import layers, with_decode

Json = dict[str, Any]


def make_problem(
    devices: int, submodules: int, objective: Objective = "latency", room: float = 1.15, phased: bool = True
) -> Problem:
    """Unlike devices and links; residual values, a shared weight, activations, a runtime of 30 MB.

    `room` is the memory of all devices over that of all sub-modules; the source has enough for a share.
    """
    rng = random.Random(devices * 1000 + submodules)
    names = [f"device_{index}" for index in range(devices)]
    share = room * submodules * 40e6 / devices + 60e6
    embed = Shared("embed", 16e6)
    parts = tuple(
        Submodule(40e6, {}, 8e6, embed if index in (0, submodules - 1) else None)
        for index in range(submodules)
    )
    speed = {name: rng.uniform(1, 4) for name in names}
    sizes = {"prefill": (1 / 64, 3e-3, 262144.0), "decode": (63 / 64, 2e-4, 4096.0)}
    phases = tuple(
        Phase(
            name,
            weight,
            tuple({n: seconds * (1 + part % 3) / speed[n] for n in names} for part in range(submodules)),
            _edges(submodules, size),
            8,
        )
        for name, (weight, seconds, size) in sizes.items()
    )
    problem = Problem(
        objective=objective,
        source=names[0],
        devices=tuple(Device(name, share * rng.uniform(0.9, 1.1), 30e6) for name in names),
        submodules=parts,
        links=tuple(
            Link(a, b, rng.choice([6e6, 12e6, 40e6]), rng.choice([3e-4, 1e-3]))
            for a in names
            for b in names
            if a != b
        ),
        phases=phases,
    )
    return problem if phased else _without_phases(problem)


def _edges(count: int, size: float) -> tuple[Edge, ...]:
    """A chain, and one value that every fourth sub-module reads again."""
    chain = [Edge(index, index + 1, size, f"h{index}") for index in range(count - 1)]
    return (*chain, *(Edge(0, index, size / 16, "rotary") for index in range(2, count, 4)))


def _without_phases(problem: Problem) -> Problem:
    step = problem.phases[-1]
    parts = tuple(
        replace(part, time_s=times) for part, times in zip(problem.submodules, step.time_s, strict=True)
    )
    return replace(problem, submodules=parts, edges=step.edges, return_bytes=step.return_bytes, phases=())


def make_plan(problem: Problem, assignment: Sequence[str] | None = None) -> Json:
    """plan.json as it is read back: with the best assignment and its explanation, or with a given one."""
    answer = solve(problem, "optimal") if assignment is None else _given(problem, tuple(assignment))
    assert answer.stages is not None
    evaluation = evaluate(problem, answer.stages)
    assert evaluation.feasible, evaluation.violations
    plan: Json = json.loads(json.dumps(plan_file(problem, answer, evaluation).to_json()))
    return plan


def _given(problem: Problem, assignment: tuple[str, ...]) -> Plan:
    stages = stages_of(assignment)
    value = evaluate(problem, stages).value
    return Plan(stages=stages, value=value, method="given", explain={"unused": {}, "what_if": []})


def plans() -> Mapping[str, Json]:
    """Name → a plan."""
    three = make_problem(3, 12)
    names = [device.name for device in three.devices]
    roomy = replace(three, devices=tuple(replace(item, memory_bytes=4e9) for item in three.devices))
    returning = [names[0]] * 4 + [names[1]] * 4 + [names[0]] * 2 + [names[2]] * 2
    return {
        "latency": make_plan(three),
        "throughput": make_plan(make_problem(4, 16, "throughput")),
        "one device": make_plan(make_problem(1, 8)),
        "left out": make_plan(roomy),
        "returning": make_plan(roomy, returning),
        "without phases": make_plan(make_problem(3, 9, phased=False)),
        "with notes": _with_notes(make_plan(replace(three, batch=4))),
        "shared": _shared(with_decode(layers({"a": 1.0, "b": 2.0, "c": 1.5}, 3, heads=6))),
        "many": make_plan(make_problem(12, 160, room=1.4), [f"device_{k * 11 // 160}" for k in range(160)]),
    }


def _shared(problem: Problem) -> Json:
    """A plan whose devices share blocks by tiles."""
    answer = solve(problem, "galaxy")
    plan: Json = json.loads(json.dumps(plan_file(problem, answer, evaluate_plan(problem, answer)).to_json()))
    return plan


def _with_notes(plan: Json) -> Json:
    """With what the planner adds for `max_batch: auto` and `survive: one`, and the overlap pass."""
    rates = [(1, 100.0), (2, 180.0), (4, 4 / plan["answer"]["value"]), (8, None)]
    plan["answer"]["explain"]["batch"] = [
        {"batch": size, "value": None, "tokens_per_s": rate, "feasible": rate is not None}
        for size, rate in rates
    ]
    plan["overlap"] = plain(
        overlap_of(read_problem(plan["problem"]), stages_of(plan["answer"]["assignment"]))
    )
    lost, holder = plan["answer"]["assignment"][-1], plan["answer"]["assignment"][0]
    plan["survival"] = {
        "losses": [{"device": lost, "text": f"if {lost} is lost: 7.20 ms per token on {holder}"}],
        "mirrors": [
            {
                "device": lost,
                "holder": holder,
                "memory_bytes": 2e6,
                "text": f"{holder} keeps the caches of {lost} up to date",
            }
        ],
    }
    return plan


def record_of(plan: Json, requests: int = 1, tokens: int = 6, scale: float = 1.0) -> Json:
    """The run record of devices that do exactly what the simulator says, `scale` times as slowly.

    Of plans that give each device one stage.
    """
    run = simulate_plan(plan, requests=requests, tokens=tokens, mode="sequential")
    found = []
    for number in range(requests):
        timings = {}
        for use in plan["predicted"]["memory"]:
            timings[use["device"]] = _timings(plan, run, number, use["device"], scale)
        elapsed = scale * run.token_s[number][-1]
        found.append(
            {
                "prompt_tokens": 5,
                "new_tokens": tokens,
                "batch": 1,
                "elapsed_s": elapsed,
                "timings": timings,
            }
        )
    started = "2026-01-31T12:00:00Z"
    return {
        "format": "partc-run/2",
        "plan_id": "0" * 64,
        "started": started,
        "local": True,
        "requests": found,
    }


def _timings(plan: Json, run: Any, number: int, device: str, scale: float) -> Json:
    """The record of the executor: it starts to wait when its last step is over."""
    is_source = device == plan["problem"]["source"]
    table, idle = [], None
    spans = [span for span in run.spans if span.request == number and span.device == device]
    for span in sorted(spans, key=lambda item: item.step):
        arrivals = [
            item.end_s
            for item in run.transfers
            if (item.request, item.step, item.receiver) == (number, span.step, device)
        ]
        began = span.start_s if is_source else min(arrivals)
        if is_source:
            waited = max(0.0, max(arrivals, default=span.end_s) - span.end_s)
        else:
            waited = max(arrivals) - (began if idle is None else idle)
        idle = span.end_s
        row = [span.step, scale * began, scale * (span.end_s - span.start_s), 0.0, 10, 20, 0, scale * waited]
        table.append([float(item) for item in row])
    columns = [
        "step",
        "started_s",
        "compute_s",
        "queue_s",
        "sent_bytes",
        "received_bytes",
        "epoch",
        "wait_s:peers",
    ]
    return {"columns": columns, "table": table}
