"""`apply` says whether the module changed: for every pass of the default pipeline, run once and run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.ir.text import print_module
from partc.ir.verify import verify
from partc.pipeline.contract import Context
from partc.pipeline.default import default_pipeline, fleet_pipeline
from partc.pipeline.registry import PASSES
from tests.passes.models import decoder

FIGURES = "arch: x86_64, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GiB"


@pytest.mark.parametrize("target", ["null", pytest.param("ort", marks=pytest.mark.ort)])
def test_a_pass_that_runs_twice_changes_nothing_the_second_time(target: str, tmp_path: Path) -> None:
    devices = tmp_path / "devices.yaml"
    devices.write_text(
        f"source: p\ndevices:\n  p: {{target: '{target}', {FIGURES}}}\n  q: {{target: '{target}', {FIGURES}}}\n"
        "links:\n  default: {bandwidth: 1 Gbit/s, latency: 1 ms}\n"
    )
    steps = default_pipeline(devices, "even", "eq1+frontier", tmp_path / "build")
    others = {"shard-blocks", "separate-blocks", "form-rings"}  # they stand in other pipelines, or in none
    assert {step.name for step in steps} == set(PASSES) - others
    module = decoder("llama")
    for step in steps:
        if step.name == "emit-bundle" and target == "ort":
            continue  # it reads the weights, which there are none of
        before = print_module(module)
        said = step.apply(module, Context())
        after = print_module(module)
        assert said or before == after, step.name
        assert not step.apply(module, Context()), f"{step.name} says that it changed something again"
        assert print_module(module) == after, step.name
    verify(module, "split")


def test_rings_that_are_formed_again_for_the_same_demand_are_the_same(tmp_path: Path) -> None:
    devices, demand = tmp_path / "devices.yaml", tmp_path / "demand.yaml"
    devices.write_text(
        f"source: p\ndevices:\n  p: {{target: 'null', {FIGURES}}}\n  q: {{target: 'null', {FIGURES}}}\n"
        "links:\n  default: {bandwidth: 1 Gbit/s, latency: 1 ms}\n"
    )
    demand.write_text("demand:\n  - {rate: 1/min, prompt: 8, answer: 8}\n")
    module = decoder("llama")
    *before, rings = fleet_pipeline(devices, demand, "eq1+frontier")
    for step in before:
        step.apply(module, Context())
    assert rings.name == "form-rings"
    assert rings.apply(module, Context())
    assert module.plan is not None and module.plan.fleet is not None
    assert not rings.apply(module, Context())


def test_splitting_and_lowering_say_that_they_changed_the_parts(tmp_path: Path) -> None:
    devices = tmp_path / "devices.yaml"
    devices.write_text(f"source: p\ndevices:\n  p: {{target: 'null', {FIGURES}}}\n")
    module = decoder("llama")
    said = {
        step.name: step.apply(module, Context())
        for step in default_pipeline(devices, "optimal", "eq1+frontier", tmp_path / "build")
    }
    assert said["split-graph"] is True
    assert said["lower-target"] is False  # the null target runs the IR as it is
    assert said["emit-bundle"] is False
