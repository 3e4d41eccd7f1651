"""Plans leave out devices whose target has no code for an operator; nothing of this needs the targets' libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partc.config.devices import load_devices
from partc.errors import PlanError, UserError
from partc.ir.graph import Module, Node
from partc.ir.operators import QUANTIZED
from partc.ir.quantization import Quantization
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.pipeline.sharing import SHARING
from partc.planner.solve import STRATEGIES
from passes.partition_graph import PartitionGraph, problem_of
from targets.tvm.target import TvmTarget
from tests.passes.models import decoder

PROFILED = (
    "quantize-weights,quantize-caches,"
    "find-cuts,form-submodules,coarsen-submodules,map-dependencies,profile-submodules"
)
INT4 = Quantization("int4", "int4", "int4")
ONLY_LAYERS = Quantization("int4", "none", "none")
DEVICES = """
source: phone
{top}
devices:
  phone: {{target: {phone}, flops: 10 GFLOP/s, memory_bandwidth: 5 GB/s, memory: {memory}}}
  board: {{target: {board}, flops: 400 GFLOP/s, memory_bandwidth: 200 GB/s, memory: 1 GiB{options}}}
  old: {{target: ort, flops: 1 GFLOP/s, memory_bandwidth: 2 GB/s, memory: {memory}}}
links:
  default: {{bandwidth: 8 Gbit/s, latency: 1 us}}
"""


@pytest.fixture(autouse=True)
def _no_quantised_kernels_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let GPUs of the tvm target have no kernels of quantised weights: plans go by what a target refuses."""

    def refusal(target: TvmTarget, node: Node) -> UserError | None:
        if not (target.machine.is_gpu and node.op in QUANTIZED):
            return None
        hint = "use `target: ort` for these devices, or write `quantize: none` in model.yaml"
        return UserError(f"the tvm target has no code for {node.op} on a GPU", where=node.place, hint=hint)

    monkeypatch.setattr(TvmTarget, "refusal", refusal)


def devices_file(folder: Path, **given: str) -> str:
    default = {"phone": "ort", "board": "tvm, provider: cuda", "memory": "1 GiB", "top": "", "options": ""}
    (folder / "devices.yaml").write_text(DEVICES.format(**default | given))
    return str(folder / "devices.yaml")


def profiled(quantize: Quantization | None) -> Module:
    module = decoder("llama")
    module.info = replace(module.info, quantize=quantize)
    run_passes(module, load_passes(PROFILED))
    return module


def plan(quantize: Quantization | None, path: str, strategy: str = "optimal") -> dict[str, Any]:
    module = profiled(quantize)
    run_passes(module, [PartitionGraph(devices=path, strategy=strategy)])
    assert module.plan is not None
    return module.plan.to_json()


@pytest.mark.parametrize("strategy", sorted(STRATEGIES.keys() - set(SHARING)))
def test_a_target_without_quantised_kernels_gets_no_quantised_submodule(
    strategy: str, tmp_path: Path
) -> None:
    answer = plan(INT4, devices_file(tmp_path), strategy)["answer"]
    assert "board" not in answer["assignment"]
    reason = "it cannot run submodules 0-5: the tvm target has no code for partc.QuantizedGather on a GPU"
    assert answer["explain"]["unused"]["board"] == reason
    # Controls: the fastest device is used as soon as it can run the model.
    assert "board" in plan(None, devices_file(tmp_path))["answer"]["assignment"]
    assert "board" in plan(INT4, devices_file(tmp_path, board="ort"))["answer"]["assignment"]


def test_equal_numbers_where_a_device_can_run_some(tmp_path: Path) -> None:
    path = devices_file(tmp_path)
    with pytest.raises(PlanError, match=r"board cannot run submodule.* the tvm target has no code") as caught:
        plan(ONLY_LAYERS, path, "even")
    assert "--strategy optimal" in str(caught.value.hint)
    plan(ONLY_LAYERS, path)


def test_what_is_not_quantised_may_go_there(tmp_path: Path) -> None:
    module = profiled(ONLY_LAYERS)
    problem = problem_of(module, load_devices(devices_file(tmp_path)))
    able = ["board" in times for times in problem.phases[0].time_s]
    quantised = [any("Quantized" in node.op for node in part.nodes) for part in module.submodules or ()]
    assert able == [not mark for mark in quantised]
    assert any(able) and not all(able)
    assert [("board" in times) for times in problem.phases[1].time_s] == able
    assert all({"phone", "old"} <= times.keys() for phase in problem.phases for times in phase.time_s)


def test_the_overlap_holds_no_copy_where_it_cannot_run(tmp_path: Path) -> None:
    path = devices_file(tmp_path, top="pin: {board: submodules 5}")
    module = profiled(ONLY_LAYERS)
    run_passes(module, [PartitionGraph(devices=path), *load_passes("overlap-submodules")])
    assert module.plan is not None
    assert (module.plan.answer.assignment or ())[5] == "board"
    overlap = module.plan.to_json()["overlap"]["shared"]
    assert not [entry for entry in overlap if entry["devices"][1] == "board"]


def refused(quantize: Quantization, path: str) -> PlanError:
    with pytest.raises(PlanError) as caught:
        plan(quantize, path)
    return caught.value


def test_no_device_is_left(tmp_path: Path) -> None:
    path = devices_file(tmp_path, phone="tvm, provider: cuda")
    Path(path).write_text(Path(path).read_text().replace("target: ort", "target: tvm, provider: cuda"))
    error = refused(INT4, path)
    assert error.message.startswith("no device can run ")
    assert error.message.endswith(
        "the tvm target has no code for partc.QuantizedGather on a GPU (phone, board, old)"
    )
    assert error.where == path
    assert "`quantize: none`" in str(error.hint) and "`target: ort`" in str(error.hint)


def test_the_source_cannot_run_the_first_submodule(tmp_path: Path) -> None:
    error = refused(INT4, devices_file(tmp_path, phone="tvm, provider: cuda"))
    assert error.message == (
        "the source phone cannot run sub-module 0, which must be on it: "
        "the tvm target has no code for partc.QuantizedGather on a GPU"
    )
    assert str(error.hint).endswith("; or choose another source: `source: old`")


@pytest.mark.parametrize(
    "top", ["place: {phone: submodules 0-1, board: submodules 2-5}", "pin: {board: submodules 2-5}"]
)
def test_a_place_or_a_pin_on_a_device_that_cannot_run_it(top: str, tmp_path: Path) -> None:
    error = refused(INT4, devices_file(tmp_path, top=top))
    assert "submodules 2-5 to board, which cannot run it: the tvm target has no code" in error.message
    assert "devices.yaml:3" in str(error.where)
    assert "`quantize: none`" in str(error.hint)


def test_too_little_memory_without_such_devices(tmp_path: Path) -> None:
    error = refused(INT4, devices_file(tmp_path, memory="500 kB"))
    assert error.message.startswith("no plan fits: memory: ")
    assert error.message.endswith(
        "board cannot run submodules 0-5: the tvm target has no code for partc.QuantizedGather on a GPU"
    )
    assert "`target: ort`" in str(error.hint)
    # A model that would not fit with it either is not its fault.
    path = devices_file(tmp_path, memory="500 kB")
    Path(path).write_text(Path(path).read_text().replace("1 GiB", "500 kB"))
    assert "board cannot run" not in refused(INT4, path).message


def test_a_gpu_gets_no_products_of_integers(tmp_path: Path) -> None:
    cuda = {"board": "ort", "options": ", provider: cuda"}
    int8 = Quantization("int8", "none", "none")
    assert "board" not in plan(int8, devices_file(tmp_path, **cuda))["answer"]["assignment"][2:4]
    assert "board" in plan(INT4, devices_file(tmp_path, **cuda))["answer"]["assignment"]


def test_a_target_without_caches_of_8_bits_gets_no_attention(tmp_path: Path) -> None:
    path = devices_file(tmp_path)
    answer = plan(Quantization(cache="int8"), path)["answer"]
    module = profiled(Quantization(cache="int8"))
    kept = [
        part.index for part in module.submodules or ()
        if any(node.op == "partc.QuantizedAttention" for node in part.nodes)
    ]  # fmt: skip
    assert kept
    assert all(answer["assignment"][index] == "board" for index in kept)


def test_caches_of_8_bits_without_a_device_for_them(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        plan(Quantization(cache="int8"), devices_file(tmp_path, board="ort"))
    assert "the ort target has no code for partc.Quantize" in str(caught.value)
    assert "remove `cache: int8` from `quantize` in model.yaml" in str(caught.value.hint)
