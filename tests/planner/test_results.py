"""Results that are made before the last sub-module: their message home is planned, simulated, and sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.cli.main import run
from partc.errors import ConfigError
from partc.format.placement import stages_of
from partc.planner.model.evaluate import evaluate
from partc.planner.model.plan_file import PLAN_FILE, read_plan
from partc.planner.model.problem_json import problem_json, read_problem
from partc.planner.simulate.build import read_build, workflow
from partc.planner.simulate.case import read_case, simulate
from partc.planner.simulate.demand import Load
from partc.planner.solve import solve

MODEL = """
model:
  config: {model_type: bert, vocab_size: 97, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 3,
           num_attention_heads: 4, max_position_embeddings: 64}
task: feature-extraction
max_sequence: 32
workload: {prompt: 16, generate: 1}
"""
DEVICES = """
source: a
devices:
  a: {target: "null", flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 64 MB}
  b: {target: "null", flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 64 MB}
links: {default: {bandwidth: 100 Mbit/s, latency: 10 us}}
ban: {a: [layer 1]}
"""
HIDDEN_BYTES = 16 * 32 * 4
"""The last hidden state of a prompt of 16."""


PROBLEM = {
    "objective": "latency", "source": "a", "return_bytes": 1,
    "devices": [{"name": name, "memory_bytes": 9} for name in "ab"],
    "submodules": [{"time_s": {"a": 1}}, {"time_s": {"b": 1}}, {"time_s": {"a": 1, "b": 1}}],
    "edges": [{"from": 0, "to": 1, "bytes": 1, "value": "v"}, {"from": 1, "to": 2, "bytes": 4, "value": "h"}],
    "links": [
        {"from": one, "to": other, "bandwidth_bytes_per_s": 1, "latency_s": 0} for one, other in ("ab", "ba")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([{"from": 1, "value": "h", "bytes": 5}], "the value `h` has two sizes"),
        ([{"from": 1, "value": "r", "bytes": 5}] * 2, "`r` is a result twice"),
        ([{"from": 2, "value": "r", "bytes": 5}], "are in return_bytes"),
    ],
)
def test_results_that_cannot_be(results: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_problem({**PROBLEM, "results": results})


def test_a_result_that_the_source_reads_goes_home_once() -> None:
    """`h` is made on b: the source is sent it to go on, or as a result."""
    problem = read_problem({**PROBLEM, "results": [{"from": 1, "value": "h", "bytes": 4}]})
    for assignment, seconds in ((["a", "b", "a"], 1 + 1 + 1 + 4 + 1), (["a", "b", "b"], 1 + 1 + 2 + 5)):
        assert evaluate(problem, stages_of(assignment)).value == seconds
    assert problem_json(problem)["results"] == [{"from": 1, "value": "h", "bytes": 4}]
    plan = solve(problem, "lingualinked", explained=False)
    assert plan.value is not None
    assert plan.bound is not None
    assert plan.bound <= 8


@pytest.mark.hf
def test_the_hidden_state_goes_home_beside_the_pooled_one(tmp_path: Path) -> None:
    """It is made in the last layer; the pooler behind it is a sub-module of its own."""
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "devices.yaml").write_text(DEVICES)
    build = tmp_path / "build"
    words = ["compile", str(tmp_path / "model.yaml"), "--target", str(tmp_path / "devices.yaml")]
    assert run([*words, "-o", str(build)]) == 0
    case = read_case(read_plan(build / PLAN_FILE))
    (phase,) = case.problem.steps
    assert [(result.value, result.bytes) for result in phase.results] == [("last_hidden_state", HIDDEN_BYTES)]
    load = Load(1, 1, "sequential", 1)
    for programs in (None, read_build(build)):
        ((seconds,),) = simulate(workflow(case, programs), load).token_s
        assert seconds == pytest.approx(case.predicted_s["prefill"], rel=1e-9)
