"""`partc simulate` on builds; what it does with a plan.json stands in golden/cli."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from partc.cli.main import run
from partc.cli.simulate import _links
from partc.planner.model.problem import Device, Link, Problem, Submodule
from partc.planner.simulate.build import build_workflow, read_build
from partc.planner.simulate.case import read_case, simulate
from partc.planner.simulate.demand import Load
from partc.planner.simulate.script import Workflow, workflow_of
from partc.report.page import render
from partc.report.sources import read_subject
from partc.report.timelines import REQUESTS, TOKENS
from tests.runtime.bundles import reseal

DECODER = """partc-ir 1
model {"dims": {"batch": 2, "sequence": 16}, "max_batch": 2, "max_sequence": 16, "max_requests": 2, "generate": 8,\
 "prompt": 8, "name": "decoder", "task": "text-generation"}
graph decoder opset 24 {
  input %input_ids: i64[batch, sequence]
  input %position: i64[batch]
  weight %embed = f32[32, 16] from "m.safetensors"#"embed"
  state %cache.0.key: f32[batch, 2, 16, 8]
  weight %w = f32[16, 16] from "m.safetensors"#"w"
  const %one = i64[1] [1]
  const %heads = i64[4] [0, 0, 2, 8]
  const %flat = i64[3] [0, 0, 16]
  submodule 0
  %h: f32[batch, sequence, 16] = Gather(%embed, %input_ids) {axis = 0}
  submodule 1
  %s: f32[batch, sequence, 2, 8] = Reshape(%h, %heads)
  %k: f32[batch, 2, sequence, 8] = Transpose(%s) {perm = [0, 2, 1, 3]}
  %keys: f32[batch, 2, 16, 8] = partc.UpdateState(%cache.0.key, %k, %position)
  %y: f32[batch, 2, sequence, 8] = partc.Attention(%k, %keys, %keys, %position) {causal = 1, chunk = 0,\
 scale = 0.5, softcap = 0.0, window = 0}
  %t: f32[batch, sequence, 2, 8] = Transpose(%y) {perm = [0, 2, 1, 3]}
  %o: f32[batch, sequence, 16] = Reshape(%t, %flat)
  submodule 2
  %r: f32[batch, sequence, 16] = Add(%o, %h)
  %m: f32[batch, sequence, 16] = MatMul(%r, %w)
  %logits: f32[batch, 1, 16] = ReduceMean(%m, %one) {keepdims = 1}
  output %logits
}
"""
DEVICES = """source: a
objective: throughput
devices:
  a: {target: "null", arch: aarch64, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 MB}
  b: {target: "null", arch: aarch64, flops: 2 GFLOP/s, memory_bandwidth: 2 GB/s, memory: 1 MB}
  c: {target: "null", arch: aarch64, flops: 4 GFLOP/s, memory_bandwidth: 4 GB/s, memory: 1 MB}
links:
  default: {bandwidth: 80 Gbit/s, latency: 1 ns}
"""
PASSES = ",".join(
    (
        "infer-sizes", "map-dependencies", "profile-submodules",
        "partition-graph{devices=devices.yaml}", "split-graph",
        "lower-target", "emit-bundle{output=build}",
    )
)  # fmt: skip


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Three devices with one sub-module each; `h` skips the one in the middle."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return build_placed("{a: submodules 0, b: submodules 1, c: submodules 2}", capsys)


def build_placed(place: str, capsys: pytest.CaptureFixture[str]) -> Path:
    """A build in the current folder, with that `place` in devices.yaml."""
    Path("g.partc").write_text(DECODER)
    Path("devices.yaml").write_text(f"{DEVICES}place: {place}\n")
    assert run(["opt", "g.partc", "-p", PASSES]) == 0, capsys.readouterr().err
    capsys.readouterr()
    return Path("build").absolute()


def found(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = run(["simulate", *words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def workflows(build: Path) -> tuple[Workflow, Workflow]:
    """By the plan, and by the files of the build."""
    case = read_case(json.loads((build / "plan.json").read_text()))
    return workflow_of(case.problem, case.stages), build_workflow(read_build(build), case)


def test_a_build_does_what_its_plan_says(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_plan, by_build = workflows(build)
    assert [list(script.programs) for script in by_plan.scripts] == [["a", "b", "c"]] * 2
    assert by_plan.scripts != by_build.scripts and by_plan.limit(8) == by_build.limit(8)
    plan = found(capsys, "build/plan.json", "--requests", "2")
    assert plan == found(capsys, "build", "--requests", "2")
    assert {(item["from"], item["to"]) for item in plan["transfers"]} == {
        ("a", "b"), ("a", "c"), ("b", "c"), ("c", "a"),
    }  # fmt: skip
    assert plan["tokens"] == 8 and [item["mode"] for item in plan["modes"]] == [
        "sequential", "bubbles", "no-bubbles",
    ]  # fmt: skip


def test_a_device_may_return(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_placed("{a: [submodules 0, submodules 2], b: submodules 1}", capsys)
    _, by_build = workflows(build)
    assert [list(script.programs) for script in by_build.scripts] == [["a", "b"]] * 2
    plan = found(capsys, "build/plan.json", "--requests", "2", "--mode", "bubbles")
    assert plan == found(capsys, "build", "--requests", "2", "--mode", "bubbles")
    assert [span["stage"] for span in plan["spans"][:3]] == [0, 0, 1]
    assert {span["stage"] for span in plan["spans"] if span["device"] == "a"} == {0, 2}


def test_a_build_takes_max_requests_at_once(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limited, free = found(capsys, "build"), found(capsys, "build/plan.json")
    assert limited["requests"] == free["requests"] == 4
    assert limited["token_s"][:2] != free["token_s"][:2]
    # The third request begins when one of the first two is done.
    starts = [span["start_s"] for span in limited["spans"] if span["request"] == 2]
    assert min(starts) == min(times[-1] for times in limited["token_s"][:2])
    assert run(["simulate", "build"]) == 0
    assert "4 requests of 8 tokens, 2 at once" in capsys.readouterr().out


def test_programs_of_another_plan_are_refused(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads((build / "plan.json").read_text())
    plan = {key: whole[key] for key in ("format", "problem")}
    for other in (["a", "b", "b"], ["a", "c", "b"]):
        plan["answer"] = {"assignment": other}
        (build / "plan.json").write_text(json.dumps(plan))
        assert run(["simulate", "build"]) == 1
        assert "the plan has other devices, or in another order" in capsys.readouterr().err
    (build / "plan.json").write_text(
        json.dumps({**whole, **plan, "answer": {**whole["answer"], **plan["answer"]}})
    )
    assert run(["simulate", "build"]) == 1
    assert "answer.value" in capsys.readouterr().err, "its value is that of another assignment"
    (build / "plan.json").write_text(json.dumps(whole))
    (build / "devices" / "c" / "build.json").unlink()
    assert run(["simulate", "build"]) == 1
    assert "not those of one plan" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "no such"),
        (["build/devices/a"], "that is one device's folder"),
        (["devices.yaml"], "not valid JSON"),
        (["plan.json"], "no such file"),
        (["build", "--speed", "d=2x"], "`d` is not one of the devices"),
        (["build", "--speed", "a=fast"], "not a name and a factor"),
        (["build", "--speed", "a=-2x"], "not a name and a factor"),
        (["build", "--speed", "a=nan"], "not a name and a factor"),
        (["build", "--speed", "a=1e-320x"], "not between 1e-06 and 1,000,000"),
        (["build", "--bandwidth", "a-b=inf"], "not between 1e-06 and 1,000,000"),
        (["build", "--speed", "a=2x", "--speed", "a=3x"], "a is given twice"),
        (["build", "--bandwidth", "a-b=2x", "--bandwidth", "a->b=3x"], "a->b is given twice"),
        (["build", "--bandwidth", "a-d=2x"], "`d` is not one of the devices"),
        (["build", "--bandwidth", "a-a=2x"], "no link a-a"),
        (["build", "--tokens", "1000000000"], "too many to follow"),
    ],
)
def test_mistakes(build: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *words]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["simulate"], ["run", "--token-ids", "1"], ["deploy", "--to", "systemd"], ["report"]],
    ids=lambda words: words[0],
)
def test_a_folder_of_another_build_is_named(
    build: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("build.json", "placement.json"):
        reseal(build / "devices" / "c" / file, plan_id="ab" * 32)
    assert run([words[0], str(build), *words[1:]]) == 1
    error = capsys.readouterr().err
    assert "the folder of c is of another build than that of a" in error
    assert "devices/c" in error


def test_a_part_is_a_number(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--efficiency", "--jitter"):
        assert run(["simulate", str(build), option, "nan"]) == 2
        assert "nan is not in the range" in capsys.readouterr().err


def test_what_if(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = found(capsys, "build", "--mode", "sequential", "--no-compare")
    assert "modes" not in plain
    faster = found(capsys, "build", "--mode", "sequential", "--speed", "a=2x", "--bandwidth", "a-b=2")
    one_way = found(capsys, "build", "--mode", "sequential", "--speed", "a=2x", "--bandwidth", "a->b=2x")
    assert plain["makespan_s"] > faster["makespan_s"] == one_way["makespan_s"]
    took = [
        next(span["end_s"] - span["start_s"] for span in data["spans"] if span["device"] == "a")
        for data in (plain, faster)
    ]
    assert took[0] == pytest.approx(2 * took[1])


def test_a_what_if_that_changes_nothing_is_noted(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_placed("{a: submodules 0-2}", capsys)
    words = ["--bandwidth", "b->a=2x", "--speed", "b=2x"]
    assert run(["simulate", "build/plan.json", *words]) == 0
    shown = capsys.readouterr()
    assert "note: --bandwidth b->a=2x changes nothing" in shown.err
    assert "note: --speed b=2x changes nothing" in shown.err
    assert run(["simulate", "build/plan.json"]) == 0
    assert capsys.readouterr().out == shown.out


@pytest.mark.parametrize("factor", ["1e-6x", "1e6"])
def test_the_largest_changes_are_still_numbers(
    build: Path, factor: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = found(capsys, "build", "--speed", f"a={factor}", "--bandwidth", f"a-b={factor}")
    assert "NaN" not in json.dumps(data) and "Infinity" not in json.dumps(data)


def test_a_report_simulates_what_the_build_takes_at_once(build: Path) -> None:
    """Its own programs, and no more requests than max_requests."""
    plan = read_subject(build).plan
    assert plan.in_flight(4) == 2
    _, by_build = workflows(build)
    assert plan.workflow == by_build
    load = Load(REQUESTS, TOKENS, "no-bubbles", 2)
    rate = simulate(by_build, load).tokens_per_s * plan.units
    text = render(read_subject(build))
    assert f'data-value="{json.dumps(rate)}"' in text
    assert "2 at once as the build takes them" in text


def test_links_of_devices_with_signs_in_their_names() -> None:
    devices = tuple(Device(name, 9.0) for name in ("a-b", "c->d"))
    links = tuple(Link(x.name, y.name, 1.0, 0.0) for x in devices for y in devices if x is not y)
    problem = Problem("latency", "a-b", devices, (Submodule(1.0, {"a-b": 1.0}),), links)
    both = {("a-b", "c->d"), ("c->d", "a-b")}
    assert _links(problem, ("a-b-c->d=2x",)) == dict.fromkeys(both, 2.0)
    assert _links(problem, ("c->d->a-b=3",)) == {("c->d", "a-b"): 3.0}


@pytest.mark.parametrize("words", [["--requests", "2"], ["--mode", "bubbles"]])
def test_guesses_are_those_of_one_request(
    build: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run(["simulate", "build", "--drafted", "0.5", *words]) == 2
    assert f"--drafted follows one request; leave out {words[0]}" in capsys.readouterr().err
