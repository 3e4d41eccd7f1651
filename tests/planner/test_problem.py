from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from partc.errors import ConfigError
from partc.format.plan import Plan
from partc.planner.model.problem_json import parse_problem, problem_json, read_problem
from partc.planner.solve import solve

EXAMPLE: dict[str, Any] = {
    "objective": "latency", "source": "A", "return_bytes": 8,
    "devices": [{"name": "A", "memory_bytes": 4e9}, {"name": "B", "memory_bytes": 8e9}],
    "submodules": [
        {"memory_bytes": 1e9, "time_s": {"A": 0.02, "B": 0.01}},
        {"memory_bytes": 2e9, "time_s": {"A": 0.04, "B": 0.02}},
    ],
    "edges": [{"from": 0, "to": 1, "bytes": 16384}],
    "links": [
        {"from": "A", "to": "B", "bandwidth_bytes_per_s": 6e6, "latency_s": 0.002},
        {"from": "B", "to": "A", "bandwidth_bytes_per_s": 6e6, "latency_s": 0.002},
    ],
}  # fmt: skip


def example() -> Any:
    return json.loads(json.dumps(EXAMPLE))


def phased() -> Any:
    data = example()
    step = {"submodules": [], "edges": data.pop("edges"), "return_bytes": data.pop("return_bytes")}
    step["submodules"] = [{"time_s": part.pop("time_s")} for part in data["submodules"]]
    data["submodules"][0] |= {"peak_bytes": 5, "shared": {"name": "embed", "bytes": 7}}
    step["edges"][0]["value"] = "hidden"
    phases = {"prefill": 0.25, "decode": 0.75}
    data["phases"] = [{"name": name, "weight": weight, **step} for name, weight in phases.items()]
    return json.loads(json.dumps(data))


def test_the_answer_of_the_specification() -> None:
    answer = solve(read_problem(EXAMPLE)).to_json()
    assert answer["assignment"] == ["A", "B"] and answer["feasible"] is True
    assert f"{answer['value']:.6f}" == "0.046732"
    assert answer["bound"] == answer["value"] and answer["gap"] == 0.0 and answer["constraint"] is None


@pytest.mark.parametrize("make", [example, phased])
def test_problem_round_trips(make: Callable[[], Any]) -> None:
    problem = read_problem(make())
    assert problem_json(problem) == make()
    assert parse_problem(json.dumps(problem_json(problem))) == problem


def test_the_batch_round_trips_and_changes_no_plan() -> None:
    data = example() | {"objective": "throughput"}
    one, eight = read_problem(data), read_problem({**data, "batch": 8})
    assert (one.batch, eight.batch) == (1, 8) and "batch" not in problem_json(one)
    assert parse_problem(json.dumps(problem_json(eight))) == eight
    assert solve(one, explained=False) == solve(eight, explained=False)
    with pytest.raises(ConfigError, match="whole number of at least 1"):
        read_problem({**data, "batch": 0})


@pytest.mark.parametrize("memory", [4e9, 1.0])
def test_plan_round_trips(memory: float) -> None:
    data = example()
    data["devices"][0]["memory_bytes"] = memory
    plan = solve(read_problem(data))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("objective", "speed", "problem: objective: `speed` is not a known objective"),
        ("source", "C", "problem: source: `C` is not one of the devices"),
        ("retrun_bytes", 3, "did you mean `return_bytes`"),
        ("devices", [], "there are no devices"),
        ("devices.1.name", "A", r"problem: devices\[1\].name: a second device"),
        ("devices.0.memory_bytes", -1, r"devices\[0\].memory_bytes: .*at least zero, found -1"),
        ("devices.0.memory_bytes", float("nan"), "finite"),
        ("devices.0.memory_bytes", "4 GB", "expected a number"),
        ("devices.0.memory_bytes", True, "expected a number"),
        ("submodules", [], "there are no sub-modules"),
        ("submodules.1.time_s.C", 1, r"submodules\[1\].time_s.C: `C` is not one"),
        ("submodules.1.time_s", 0.02, "expected a mapping"),
        ("submodules.1.time_s.A", float("inf"), "finite"),
        ("submodules.1.size", 1, "unknown key `size`"),
        ("submodules.1.shared", {"name": "x"}, "the key `bytes` is missing"),
        ("edges.0.to", 0, r"edges\[0\]: an edge from 0 to 0 does not go forwards"),
        ("edges.0.to", 2, "index of a sub-module"),
        ("edges.0.bytes", -3, "at least zero"),
        (
            "edges.0.bytes",
            1e-31,
            r"edges\[0\].bytes: expected zero or a number of at least 1e-30, found 1e-31",
        ),
        ("edges.0.bytes", 1e31, r"edges\[0\].bytes: expected a finite number up to"),
        ("submodules.0.time_s.A", 1e308, r"submodules\[0\].time_s.A: expected a finite number up to"),
        (
            "links.0.bandwidth_bytes_per_s",
            1e-320,
            "bandwidth_bytes_per_s: expected a number of at least 1e-30",
        ),
        ("edges", {}, "expected a list"),
        ("links.0.bandwidth_bytes_per_s", 0, r"links\[0\].bandwidth_bytes_per_s: .*above zero"),
        ("links.0.to", "A", "to itself"),
        ("links.0.from", "Z", "not one of the devices"),
        ("links.1", EXAMPLE["links"][0], "a second link from `A` to `B`"),
        ("phases", [], "unknown key|no phase has a weight"),
    ],
)
def test_mistakes_name_the_json_path(path: str, value: object, message: str) -> None:
    data = example()
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place = data
    for key in parents:
        place = place[key]
    place[last] = value
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        read_problem(data)


def test_one_value_has_one_size() -> None:
    data = example()
    data["edges"] = [{"from": 0, "to": 1, "bytes": size, "value": "x"} for size in (1, 2)]
    with pytest.raises(ConfigError, match="two sizes"):
        read_problem(data)


def test_one_shared_group_has_one_size() -> None:
    data = example()
    for part, size in zip(data["submodules"], (7, 8), strict=True):
        part["shared"] = {"name": "embed", "bytes": size}
    with pytest.raises(
        ConfigError, match=r"submodules\[1\].shared.bytes: the shared group `embed` has two sizes"
    ):
        read_problem(data)


@pytest.mark.parametrize("strategy", ["optimal", "even", "edgeshard-latency", "edgeshard-throughput"])
@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("extreme", [1e-30, 1e18])
def test_the_largest_and_smallest_numbers_give_numbers(strategy: str, objective: str, extreme: float) -> None:
    data = example() | {"objective": objective}
    data["edges"][0]["bytes"] = extreme
    for part in data["submodules"]:
        part["time_s"] = dict.fromkeys("AB", extreme)
    for link in data["links"]:
        link["bandwidth_bytes_per_s"] = 1e18 if extreme < 1 else 1e-30
    json.dumps(solve(read_problem(data), strategy).to_json(), allow_nan=False)


def test_phases_must_match() -> None:
    data = phased()
    data["phases"][1]["submodules"].pop()
    with pytest.raises(ConfigError, match=r"phases\[1\].submodules: expected 2 sub-modules, found 1"):
        read_problem(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "p.json:1:2: not valid JSON"),
        ("[]", "expected a mapping"),
        ('{"a": 1, "a": 2}', "the key .a. stands twice"),
    ],
)
def test_broken_json(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_problem(text, "p.json")


def test_a_number_of_thousands_of_digits() -> None:
    with pytest.raises(ConfigError, match=r"^p.json:1:11: not valid JSON: the number 10+ is too large\n"):
        parse_problem(f'{{"batch": 1{"0" * 5000}}}', "p.json")
