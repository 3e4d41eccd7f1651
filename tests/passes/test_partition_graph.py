"""partition-graph: from a profiled module and devices.yaml to a plan; the graph stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partc.config.devices import load_devices
from partc.errors import PlanError, UserError
from partc.ir.graph import Module, PhaseCost
from partc.ir.text import parse_module, print_module
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Drafts
from partc.planner.model.problem_json import problem_json, read_problem
from partc.planner.model.roofline import roofline_s
from passes.partition_graph import NEARLY, PartitionGraph, problem_of
from tests.passes.models import HIDDEN, VOCAB, decoder, graph

PROFILED = "find-cuts,form-submodules,coarsen-submodules,map-dependencies,profile-submodules"
DEVICES = """
source: phone
{top}
devices:
  phone: {{target: ort, arch: aarch64, flops: 10 GFLOP/s, memory_bandwidth: 5 GB/s, memory: {memory}}}
  board: {{target: ort, arch: aarch64, flops: 40 GFLOP/s, memory_bandwidth: 20 GB/s, memory: {memory}}}
  old: {{target: ort, arch: aarch64, flops: 1 GFLOP/s, memory_bandwidth: 2 GB/s, memory: {memory},
    overhead: 1 KiB}}
links:
  default: {{bandwidth: 800 Mbit/s, latency: 1 ms}}
  old->phone: {{bandwidth: 8 Mbit/s, latency: 5 ms}}
"""


def devices_file(folder: Path, memory: str = "1 GiB", top: str = "memory_fraction: 0.5") -> Path:
    path = folder / "devices.yaml"
    path.write_text(DEVICES.format(memory=memory, top=top), encoding="utf-8")
    return path


def profiled(**info: Any) -> Module:
    module = decoder("llama", **info)
    run_passes(module, load_passes(PROFILED))
    return module


def test_the_problem_says_what_the_profile_and_the_devices_say(tmp_path: Path) -> None:
    module = profiled()
    problem = problem_of(module, load_devices(devices_file(tmp_path)))
    assert module.profile is not None
    assert [(d.name, d.memory_bytes, d.overhead_bytes) for d in problem.devices] == [
        ("phone", 2**29, 0), ("board", 2**29, 0), ("old", 2**29, 1024),
    ]  # fmt: skip
    assert problem.link_of["old", "phone"].bandwidth_bytes_per_s == 1e6
    assert problem.link_of["phone", "old"].latency_s == 1e-3
    embedding, attention, *_ = problem.submodules
    assert embedding.shared is not None
    assert embedding.shared.bytes == 4 * HIDDEN * VOCAB
    profile = module.profile[1]
    assert attention.memory_bytes == profile.weight_bytes + profile.state_bytes
    assert attention.peak_bytes == profile.phases["prefill"].peak_bytes


@pytest.mark.parametrize(("provider", "factor"), [("cpu", 2), ("cuda", 1)])
def test_half_precision_takes_twice_the_memory_where_there_are_no_kernels_for_it(
    tmp_path: Path, provider: str, factor: int
) -> None:
    module = profiled()
    assert module.profile is not None
    plain = problem_of(module, load_devices(devices_file(tmp_path))).submodules
    module.info = replace(module.info, dtype="f16")
    module.profile = [replace(item, half_bytes=item.weight_bytes) for item in module.profile]
    path = devices_file(tmp_path)
    path.write_text(path.read_text().replace("target: ort", f"target: ort, provider: {provider}"))
    for before, after, item in zip(
        plain, problem_of(module, load_devices(path)).submodules, module.profile, strict=True
    ):
        assert after.memory_bytes - before.memory_bytes == (factor - 1) * item.weight_bytes
        assert after.peak_bytes == factor * before.peak_bytes


def test_the_phases_are_weighted_by_the_workload(tmp_path: Path) -> None:
    problem = problem_of(profiled(generate=4), load_devices(devices_file(tmp_path)))
    prefill, decode = problem.phases
    assert (prefill.weight, decode.weight) == (0.25, 0.75)
    assert (prefill.return_bytes, decode.return_bytes) == (8, 8)
    assert [(e.sender, e.receiver, e.bytes, e.value) for e in decode.edges[:2]] == [
        (0, 1, 4 * HIDDEN, "h0"), (1, 2, 4 * HIDDEN, "l0.mid"),
    ]  # fmt: skip
    assert prefill.edges[0].bytes == 32 * 4 * HIDDEN


def test_guesses_are_part_of_the_problem_with_their_prices(tmp_path: Path) -> None:
    path = devices_file(tmp_path)
    module = profiled(drafted=0.25)
    problem = problem_of(module, load_devices(path))
    assert problem.drafts == Drafts(0.25), "onnxruntime computes one token after the other"
    assert problem.returns == 0
    path.write_text(path.read_text().replace("target: ort, arch: aarch64", "target: tvm, arch: x86_64"))
    few = problem_of(module, load_devices(path)).drafts
    assert few is not None
    # float32 with AVX2: a row costs 0.13 of reading all weights.
    assert dict(few.step_tokens) == pytest.approx({k: (1 + 0.13 * k) / 1.13 for k in (2, 4, 8)})
    path.write_text(path.read_text().replace("target: tvm, arch: x86_64", "target: ort, arch: aarch64", 1))
    mixed = problem_of(module, load_devices(path)).drafts
    assert mixed == Drafts(0.25, ((2, 2.0), (4, 4.0), (8, 8.0))), "the slowest device counts"


@pytest.mark.parametrize(
    "info", [{"drafts": False}, {"batch": 2, "max_batch": 2}, {"task": "feature-extraction"}]
)
def test_no_tokens_are_guessed_where_they_cannot_be(tmp_path: Path, info: dict[str, Any]) -> None:
    assert problem_of(profiled(**info), load_devices(devices_file(tmp_path))).drafts is None


def test_the_roofline(tmp_path: Path) -> None:
    phone = load_devices(devices_file(tmp_path)).devices["phone"]
    assert roofline_s(PhaseCost(10**10, 10**9, 0), phone) == pytest.approx(1.0)
    assert roofline_s(PhaseCost(10**9, 10**10, 0), phone) == pytest.approx(2.0)


def test_a_task_without_states_returns_its_outputs(tmp_path: Path) -> None:
    module = graph("input %x: f32[4]\n%a: f32[4] = Relu(%x)\n%b: f32[2, 4] = Tile(%a)\noutput %a, %b")
    run_passes(module, load_passes("form-submodules,map-dependencies,profile-submodules"))
    (phase,) = problem_of(module, load_devices(devices_file(tmp_path))).phases
    assert (phase.name, phase.weight, phase.return_bytes) == ("prefill", 1.0, 48)


def test_the_plan_is_plain_data_and_the_graph_is_untouched(tmp_path: Path) -> None:
    module = profiled()
    before = print_module(module)
    path = devices_file(tmp_path, memory="6 MB", top="memory_fraction: 1.0")
    run_passes(module, [PartitionGraph(devices=str(path))])
    plan, module.plan = module.plan, None
    assert print_module(module) == before
    assert plan is not None
    data = plan.to_json()
    assert set(data) == {"format", "problem", "answer", "predicted"}
    assert data["format"] == "partc-plan/1"
    problem = read_problem(plan.problem)
    assert problem == problem_of(module, load_devices(path))
    assert plan.predicted == evaluate(problem, plan.stages).predicted
    module.plan = plan
    assert parse_module(print_module(module)).plan == plan


def test_strategies_are_compared_on_the_same_problem(tmp_path: Path) -> None:
    path = str(devices_file(tmp_path))
    module = profiled()
    values: dict[str, float] = {}
    for strategy in ("optimal", "even"):
        run_passes(module, [PartitionGraph(devices=path, strategy=strategy)])
        assert module.plan is not None
        values[strategy] = module.plan.answer.value or 0.0
    assert values["optimal"] < values["even"]


def test_too_little_memory_is_said_with_a_remedy(tmp_path: Path) -> None:
    path = devices_file(tmp_path, memory="100 kB")
    with pytest.raises(PlanError, match=r"no plan fits: .*") as caught:
        run_passes(profiled(), [PartitionGraph(devices=str(path))])
    assert caught.value.where == str(path)
    assert "memory" in str(caught.value.hint)


def test_a_module_without_a_profile(tmp_path: Path) -> None:
    module = decoder("llama")
    run_passes(module, load_passes("form-submodules,map-dependencies"))
    with pytest.raises(UserError, match="no profile"):
        run_passes(module, [PartitionGraph(devices=str(devices_file(tmp_path)))])


def test_a_place_is_planned_as_it_is(tmp_path: Path) -> None:
    module = profiled()
    assert len(module.submodules or ()) == 6
    path = devices_file(
        tmp_path, top="place: {phone: [submodules 0-1, submodules 4-5], board: submodules 2-3}"
    )
    run_passes(module, [PartitionGraph(devices=str(path))])
    assert module.plan is not None
    answer, predicted = module.plan.answer, module.plan.predicted
    assert [(stage.device, *stage.submodules) for stage in answer.stages or ()] == [
        ("phone", 0, 1), ("board", 2, 3), ("phone", 4, 5)
    ]  # fmt: skip
    assert answer.method == "placed by devices.yaml" and "best" in answer.explain
    assert predicted is not None
    assert len(predicted.phases[0].stages) == 3 and len(predicted.memory) == 2


def test_pins_and_bans_become_absent_times(tmp_path: Path) -> None:
    path = devices_file(tmp_path, top="pin: {old: submodules 3}\nban: {board: submodules 4-5}")
    problem = problem_of(profiled(), load_devices(path))
    for phase in problem.phases:
        assert [sorted(times) for times in phase.time_s] == [
            *[["board", "old", "phone"]] * 3, ["old"], *[["old", "phone"]] * 2,
        ]  # fmt: skip
    module = profiled()
    run_passes(module, [PartitionGraph(devices=str(path))])
    assert module.plan is not None and (module.plan.answer.assignment or ())[3] == "old"


def test_the_workloads_batch_is_priced(tmp_path: Path) -> None:
    devices = load_devices(devices_file(tmp_path))
    one, four = (problem_of(profiled(max_batch=4, batch=batch), devices) for batch in (None, 4))
    assert (one.batch, four.batch) == (1, 4)
    assert [part.memory_bytes for part in one.submodules] == [part.memory_bytes for part in four.submodules]
    for few, many in zip(one.phases, four.phases, strict=True):
        assert many.return_bytes == 4 * few.return_bytes
        assert [edge.bytes for edge in many.edges] == [4 * edge.bytes for edge in few.edges]
        assert all(b["old"] > a["old"] for a, b in zip(few.time_s, many.time_s, strict=True))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_batch_that_makes_most_tokens_is_chosen(tmp_path: Path, objective: str) -> None:
    path = devices_file(tmp_path, memory="14 MB", top=f"memory_fraction: 1.0\nobjective: {objective}")
    module = profiled(max_batch=64, batches=(1, 2, 4, 8, 16, 32, 64))
    run_passes(module, [PartitionGraph(devices=str(path))])
    assert module.plan is not None
    tried: Any = module.plan.answer.explain["batch"]
    fitting = [one for one in tried if one["feasible"]]
    assert [one["batch"] for one in tried] == sorted(one["batch"] for one in tried)
    # It grows until the caches no longer fit, and is then refined up to the very number.
    largest = fitting[-1]["batch"]
    assert tried[: len(fitting)] == fitting and tried[len(fitting)]["batch"] == largest + 1
    most = max(one["tokens_per_s"] for one in fitting)
    best = next(one for one in fitting if one["tokens_per_s"] >= NEARLY * most)
    value = module.plan.answer.value
    rate = best["batch"] * value if objective == "throughput" else best["batch"] / value
    assert (best["value"], best["tokens_per_s"]) == (value, pytest.approx(rate))
    info, problem = module.info, module.plan.problem or {}
    assert info.max_batch == info.batch == info.dims["batch"] == problem["batch"] == best["batch"]
    assert info.batches == ()
    # Just as if it had been given.
    given = profiled(max_batch=best["batch"], batch=best["batch"], dims=info.dims)
    assert problem == problem_json(problem_of(given, load_devices(path)))
    assert module.profile == given.profile
    before = print_module(module)
    (run,) = run_passes(module, [PartitionGraph(devices=str(path))])
    assert module.plan is not None and "batch" not in module.plan.answer.explain
    assert run.modified and parse_module(before).info == module.info


def test_a_small_batch_that_is_nearly_as_good_is_taken(tmp_path: Path) -> None:
    """Slow links whose bytes grow with the batch: no batch makes much more than any other."""
    path = devices_file(tmp_path, memory="1 GiB", top="pin: {board: submodules 2-5}")
    path.write_text(path.read_text().replace("800 Mbit/s", "1 kbit/s").replace("1 ms", "0 s"))
    module = profiled(max_batch=64, batches=(1, 2, 4, 8, 16, 32, 64))
    run_passes(module, [PartitionGraph(devices=str(path))])
    assert module.plan is not None
    tried: Any = module.plan.answer.explain["batch"]
    assert module.info.batch == 1 or module.info.batch is None
    rates = [one["tokens_per_s"] for one in tried]
    assert max(rates) > rates[0] >= NEARLY * max(rates)


def test_no_batch_fits(tmp_path: Path) -> None:
    module = profiled(max_batch=4, batches=(2, 4))
    with pytest.raises(PlanError, match="no plan fits"):
        run_passes(module, [PartitionGraph(devices=str(devices_file(tmp_path, memory="100 kB")))])
