"""Costs from records of runs: the plan that ran comes out at what it took, and others at what follows from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from partc.cli.profile_tables import learnt_json, print_learnt
from partc.config.devices import DevicesConfig, load_devices
from partc.config.yamlfile import load_yaml
from partc.errors import UserError
from partc.format.placement import stages_of
from partc.format.plan import SharedStage, Timeline
from partc.ir.graph import Module
from partc.ir.workload import settings, workload
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.planner.model.evaluate import evaluate
from partc.planner.model.roofline import submodule_s
from partc.profiler.files import write_learnt
from partc.profiler.learn import Learnt, learn
from partc.profiler.learn_links import fit_link
from partc.runs.history import History
from partc.runs.records import RunRecord
from partc.runtime.client.results import Timings
from passes.partition_graph import problem_of
from tests.passes.models import decoder
from tests.profiler.runs import Truth, history_of, run_of

PROFILED = "find-cuts,form-submodules,coarsen-submodules,map-dependencies,profile-submodules"
DEVICES = """
source: phone
devices:
  phone: {target: "null", threads: 1, flops: 10 GFLOP/s, memory_bandwidth: 5 GB/s, memory: 1 GiB}
  board: {target: "null", threads: 1, flops: 40 GFLOP/s, memory_bandwidth: 20 GB/s, memory: 1 GiB}
  old: {target: "null", threads: 1, flops: 4 GFLOP/s, memory_bandwidth: 2 GB/s, memory: 1 GiB}
links:
  default: {bandwidth: 100 Mbit/s, latency: 2 ms}
  old->phone: {bandwidth: 20 Mbit/s, latency: 5 ms}
"""
TWO = Truth(
    computing={"phone": (0.020, 0.004), "board": (0.030, 0.006)},
    own={"phone": 0.0002, "board": 0.0003},
    links={"phone": (0.0025, 0.0008), "board": (0.0007, 0.0007)},
)


@pytest.fixture
def module() -> Module:
    module = decoder("llama", layers=4)
    run_passes(module, load_passes(PROFILED))
    return module


@pytest.fixture
def devices(tmp_path: Path) -> DevicesConfig:
    (tmp_path / "given.yaml").write_text(DEVICES)
    return load_devices(tmp_path / "given.yaml")


def split(module: Module, first: int, names: tuple[str, str] = ("phone", "board")) -> list[str]:
    """So many sub-modules on one device, the rest on the other."""
    count = len(module.submodules or ())
    return [names[0]] * first + [names[1]] * (count - first)


def history(module: Module, devices: DevicesConfig, *records: RunRecord, first: int = 3) -> History:
    return history_of(module, devices, split(module, first), *(records or (run_of(TWO.request()),)))


def written(learnt: Learnt, module: Module, devices: DevicesConfig, folder: Path) -> DevicesConfig:
    """devices.yaml as compile reads it next."""
    top = load_yaml(folder / "given.yaml")
    write_learnt(folder, top, devices, settings(module.info), learnt)
    return load_devices(folder / "devices.yaml")


def planned(module: Module, devices: DevicesConfig, assignment: list[str]) -> tuple[Timeline, ...]:
    found = evaluate(problem_of(module, devices), stages_of(assignment))
    assert found.feasible, found.violations
    return found.phases


@pytest.mark.parametrize("first", [1, 3, 6])
def test_the_plan_that_ran_comes_out_at_what_it_took(
    module: Module, devices: DevicesConfig, tmp_path: Path, first: int
) -> None:
    learnt = learn(module, devices, [history(module, devices, first=first)])
    phases = planned(module, written(learnt, module, devices, tmp_path), split(module, first))
    for place, phase in enumerate(phases):
        took = TWO.step_s(place)
        assert phase.latency_s == pytest.approx(took, rel=1e-3), phase.phase
    assert learnt.overheads["board"].own_s == pytest.approx(0.0003)
    (forth,) = (message for message in phases[1].messages if message.receiver == "board")
    assert forth.seconds == pytest.approx(0.0008 + 0.0003, rel=1e-3), (
        "the receiver's runner is in the message"
    )


def test_without_a_common_clock_the_whole_is_the_same(
    module: Module, devices: DevicesConfig, tmp_path: Path
) -> None:
    far = run_of(TWO.request(clocks={"board": 5000.0}), local=False)
    learnt = learn(module, devices, [history(module, devices, far)])
    phases = planned(module, written(learnt, module, devices, tmp_path), split(module, 3))
    for place, phase in enumerate(phases):
        assert phase.latency_s == pytest.approx(TWO.step_s(place), rel=0.02), phase.phase
    assert learnt.overheads["board"].own_s == pytest.approx(0.0003), "on its own clock"


def test_submodules_that_a_device_did_not_run_are_scaled_like_its_own(
    module: Module, devices: DevicesConfig, tmp_path: Path
) -> None:
    learnt = learn(module, devices, [history(module, devices)])
    found = written(learnt, module, devices, tmp_path)
    step = workload(module.info)[1]
    costs = [item.phases["decode"] for item in module.profile or ()]
    before = submodule_s(module.submodules or (), costs, step, devices)
    after = submodule_s(module.submodules or (), costs, step, found)
    ran = sum(times["phone"] for times in before[:3])
    for old, new in zip(before, after, strict=True):
        assert new["phone"] == pytest.approx(old["phone"] * 0.004 / ran)
        assert new["old"] == old["old"], "it took no part"
    assert learnt.notes == ("old took no part: priced as before",)


def test_loads_of_different_sizes_tell_what_a_call_takes(
    module: Module, devices: DevicesConfig, tmp_path: Path
) -> None:
    step = workload(module.info)[1]
    costs = [item.phases["decode"] for item in module.profile or ()]
    prices = [one["phone"] for one in submodule_s(module.submodules or (), costs, step, devices)]
    call_s, factor = sum(prices[:2]), 3.0

    def truth(first: int) -> Truth:
        return replace(
            TWO, computing={**TWO.computing, "phone": (0.02, call_s + factor * sum(prices[:first]))}
        )

    runs = [history(module, devices, run_of(truth(first).request()), first=first) for first in (2, 9)]
    learnt = learn(module, devices, runs)
    assert learnt.overheads["phone"].call_s == pytest.approx(call_s, rel=1e-6)
    found = written(learnt, module, devices, tmp_path)
    times = [one["phone"] for one in submodule_s(module.submodules or (), costs, step, found)]
    assert times == pytest.approx([factor * price for price in prices], rel=1e-6)
    assert found.measured is not None
    assert found.measured.devices["phone"].step_overhead_s == pytest.approx(call_s + 0.0002)
    assert learn(module, devices, runs[:1]).overheads["phone"].call_s == 0.0, (
        "one load tells nothing of a call"
    )


def test_a_known_call_is_not_part_of_the_submodules(
    module: Module, devices: DevicesConfig, tmp_path: Path
) -> None:
    """And what was learnt before stands for devices that take no part any more."""
    three = Truth(
        {"phone": (0.02, 0.004), "old": (0.02, 0.004)}, {"phone": 1e-4, "old": 1e-4},
        {"phone": (2e-3, 1e-3), "old": (1e-3, 1e-3)},
    )  # fmt: skip
    run = history_of(module, devices, split(module, 3, ("phone", "old")), run_of(three.request()))
    before = written(learn(module, devices, [run]), module, devices, tmp_path)
    data = json.loads((tmp_path / "times.json").read_text())
    data["devices"]["phone"]["call_overhead_s"] = 0.001
    (tmp_path / "times.json").write_text(json.dumps(data))
    before = load_devices(tmp_path / "devices.yaml")
    again = learn(module, before, [history(module, before)])
    (tmp_path / "given.yaml").write_text((tmp_path / "devices.yaml").read_text())
    after = written(again, module, before, tmp_path)
    assert after.measured is not None and before.measured is not None
    assert again.overheads["phone"].call_s == 0.001
    assert after.measured.devices["old"] == before.measured.devices["old"]
    phases = planned(module, after, split(module, 3))
    assert phases[1].latency_s == pytest.approx(TWO.step_s(1), rel=1e-3)


@pytest.mark.parametrize("slow", [(), (2,), (5, 6)])
def test_a_few_slow_steps_change_nothing(
    module: Module, devices: DevicesConfig, tmp_path: Path, slow: tuple[int, ...]
) -> None:
    learnt = learn(module, devices, [history(module, devices, run_of(TWO.request(24, slow=slow)))])
    phases = planned(module, written(learnt, module, devices, tmp_path), split(module, 3))
    assert phases[1].latency_s == pytest.approx(TWO.step_s(1), rel=1e-3)


@pytest.mark.parametrize("forgets", [False, True])
def test_steps_under_another_placement_do_not_count(
    module: Module, devices: DevicesConfig, tmp_path: Path, forgets: bool
) -> None:
    """They are many more and much longer; a device that was lost tells of none before."""
    request = TWO.request(40, moved=9)
    if forgets:
        board = request.timings["board"]
        kept = Timings(board.columns, board.table[board.table[:, 0] >= 5])
        request = replace(request, timings={**request.timings, "board": kept})
    learnt = learn(module, devices, [history(module, devices, run_of(request), run_of(TWO.request()))])
    phases = planned(module, written(learnt, module, devices, tmp_path), split(module, 3))
    for place, phase in enumerate(phases):
        assert phase.latency_s == pytest.approx(TWO.step_s(place), rel=1e-3), phase.phase


def test_runs_after_a_move_alone_tell_nothing(module: Module, devices: DevicesConfig) -> None:
    with pytest.raises(UserError, match="no run did the planned work: 8 steps after a move or a loss"):
        learn(module, devices, [history(module, devices, run_of(TWO.request(moved=0)))])


def test_runs_of_devices_that_share_stages_tell_nothing(module: Module, devices: DevicesConfig) -> None:
    alone = history(module, devices, run_of(TWO.request()))
    stages = tuple(SharedStage(stage.submodules, stage.devices) for stage in alone.case.stages)
    shared = replace(alone, case=replace(alone.case, phases={"prefill": stages, "decode": stages}))
    with pytest.raises(UserError, match="its devices share stages") as caught:
        learn(module, devices, [shared])
    assert "--strategy optimal" in str(caught.value.hint)


def test_a_link_is_learnt_for_both_ways_where_they_were_given_alike(
    module: Module, devices: DevicesConfig
) -> None:
    ring = Truth(
        {"phone": (0.02, 0.004), "board": (0.02, 0.004), "old": (0.02, 0.004)},
        {"phone": 0.0, "board": 0.0, "old": 0.0},
        {"phone": (2e-3, 1e-3), "board": (3e-3, 2e-3), "old": (4e-3, 4e-3)},
    )
    count = len(module.submodules or ())
    assignment = ["phone"] * 3 + ["board"] * 2 + ["old"] * (count - 5)
    run = history_of(module, devices, assignment, run_of(ring.request()))
    links = learn(module, devices, [run]).links
    assert links["board", "phone"] == links["phone", "board"]
    assert links["old", "board"] == links["board", "old"]
    assert ("phone", "old") not in links, "old->phone was given by itself"
    assert links["phone", "board"].bandwidth_bytes_per_s != pytest.approx(100e6 / 8), (
        "it is that of the prompt"
    )
    assert links["old", "phone"].bandwidth_bytes_per_s == pytest.approx(20e6 / 8), (
        "a token tells nothing of it"
    )


def test_builds_of_different_rings(module: Module, devices: DevicesConfig, tmp_path: Path) -> None:
    other = Truth(
        {"phone": (0.02, 0.004), "old": (0.02, 0.004)}, {"phone": 0.0002, "old": 0.0004},
        {"phone": (2e-3, 1e-3), "old": (1e-3, 1e-3)},
    )  # fmt: skip
    far = history_of(module, devices, split(module, 3, ("phone", "old")), run_of(other.request()))
    learnt = learn(module, devices, [history(module, devices), far])
    assert (learnt.runs, learnt.notes) == (2, ())
    owns = {name: overheads.own_s for name, overheads in learnt.overheads.items()}
    assert owns == pytest.approx({"phone": 0.0002, "board": 0.0003, "old": 0.0004})
    found = written(learnt, module, devices, tmp_path)
    for truth, last in ((TWO, "board"), (other, "old")):
        phases = planned(module, found, split(module, 3, ("phone", last)))
        assert phases[1].latency_s == pytest.approx(truth.step_s(1), rel=1e-3)


def test_prompts_of_another_length_are_other_work(
    module: Module, devices: DevicesConfig, tmp_path: Path
) -> None:
    learnt = learn(module, devices, [history(module, devices, run_of(TWO.request(prompt=5)))])
    assert any("prompts are priced as before" in note and "had 5" in note for note in learnt.notes)
    found = written(learnt, module, devices, tmp_path)
    before, after = (planned(module, one, split(module, 3)) for one in (devices, found))
    for old, new in zip(before[0].stages, after[0].stages, strict=True):
        own = 0.0002 if new.device == "phone" else 0.0
        assert new.seconds == pytest.approx(old.seconds + own)
    assert after[1].latency_s == pytest.approx(TWO.step_s(1), rel=1e-3)


def test_parts_of_a_prompt_overlap(module: Module, devices: DevicesConfig, tmp_path: Path) -> None:
    """The second device begins while the first one is at work."""
    overlapping = replace(TWO, links={**TWO.links, "phone": (-0.012, 0.0008)})
    run = run_of(overlapping.request())
    cut = history_of(module, devices, split(module, 3), run, prompt_chunk=16)
    learnt = learn(module, devices, [cut])
    phases = planned(module, written(learnt, module, devices, tmp_path), split(module, 3))
    for place, phase in enumerate(phases):
        assert phase.latency_s == pytest.approx(overlapping.step_s(place), rel=1e-3), phase.phase
    assert {item.share < 0.8 for item in learnt.observed if item.phase == "prefill"} == {True}
    assert {item.share for item in learnt.observed if item.phase == "decode"} == {1.0}
    assert any("prompts went in parts" in note for note in learnt.notes)
    whole = history_of(module, devices, split(module, 3), run, prompt_chunk=32)
    assert {item.share for item in learn(module, devices, [whole]).observed} == {1.0}, "a single part"


def test_requests_that_had_the_ring_to_themselves_are_preferred(
    module: Module, devices: DevicesConfig
) -> None:
    slower = replace(TWO, computing=dict.fromkeys(TWO.computing, (1.0, 1.0)))
    shared = run_of(slower.request(), slower.request(began=100.5))
    both = learn(module, devices, [history(module, devices, shared, run_of(TWO.request()))])
    assert (both.runs, both.requests) == (2, 1)
    decode = [item.seconds for item in both.observed if item.phase == "decode"]
    assert decode == pytest.approx([0.004, 0.006])
    alone = learn(module, devices, [history(module, devices, shared)])
    assert alone.requests == 2
    assert any("shared the ring" in note for note in alone.notes)


def test_runs_that_did_other_work_are_refused(module: Module, devices: DevicesConfig) -> None:
    batch = replace(TWO.request(), batch=7)
    with pytest.raises(UserError, match="the plan is for 1 sequence"):
        learn(module, devices, [history(module, devices, run_of(batch))])
    with pytest.raises(UserError, match="none went beyond its first token"):
        learn(module, devices, [history(module, devices, run_of(TWO.request(tokens=1)))])


@pytest.mark.parametrize(
    ("was", "now", "message", "where"),
    [
        (
            "threads: 1",
            "threads: 2",
            "the runs are of threads 1, devices.yaml has 2",
            "devices.phone.threads",
        ),
        ('"null"', "ort", "the runs are of target null, devices.yaml has ort", "devices.phone.target"),
        ("source: phone", "source: board", "the runs are of source phone, devices.yaml has board", "source"),
        ("board:", "tablet:", "the runs are of device board, devices.yaml has phone, tablet, old", "devices"),
    ],
)
def test_runs_of_other_devices_are_refused(
    module: Module, devices: DevicesConfig, tmp_path: Path, was: str, now: str, message: str, where: str
) -> None:
    (tmp_path / "other.yaml").write_text(DEVICES.replace(was, now))
    with pytest.raises(UserError) as caught:
        learn(module, load_devices(tmp_path / "other.yaml"), [history(module, devices)])
    assert (caught.value.message, caught.value.where) == (message, where)
    assert "compile and run again" in str(caught.value.hint)


def test_runs_of_another_model_are_refused(module: Module, devices: DevicesConfig) -> None:
    other = decoder("llama", layers=2)
    run_passes(other, load_passes(PROFILED))
    with pytest.raises(UserError, match="another model, workload or cut rule") as caught:
        learn(other, devices, [history(module, devices)])
    assert caught.value.where == "build"
    assert "partc compile" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("points", "latency", "bandwidth"),
    [
        ([(8.0, 0.001)], 0.001 - 8e-6, 1e6),
        ([(1000.0, 0.002), (5000.0, 0.004)], 0.0015, 2e6),
        ([(1000.0, 0.002), (5000.0, 0.002)], 0.001, 1e6),
        ([(1000.0, 0.0005)], 0.0, 1e6),
    ],
)
def test_the_line_through_messages(
    points: list[tuple[float, float]], latency: float, bandwidth: float
) -> None:
    found = fit_link(points, given_bandwidth=1e6)
    assert found.latency_s == pytest.approx(latency)
    assert found.bandwidth_bytes_per_s == pytest.approx(bandwidth)


def test_the_share_of_guessed_tokens_is_that_of_all_runs(
    module: Module, devices: DevicesConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    request = TWO.request()
    guessed = replace(request, drafted=request.new_tokens, accepted=request.new_tokens // 2)
    learnt = learn(module, devices, [history(module, devices, run_of(guessed, request), run_of(guessed))])
    share = 2 * (request.new_tokens // 2) / (3 * request.new_tokens)
    assert learnt.guesses.share == share
    assert learnt_json(learnt)["drafted"]["share"] == share
    print_learnt(learnt)
    assert f"workload: {{drafted: {share:.2g}}}" in " ".join(capsys.readouterr().out.split())
    print_learnt(learn(module, devices, [history(module, devices)]))
    assert "drafted" not in capsys.readouterr().out
