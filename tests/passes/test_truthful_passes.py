"""`apply` says whether the module changed: for every pass of the default pipeline, run once and run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.ir.text import print_module
from partc.ir.verify import verify
from partc.pipeline.contract import Context
from partc.pipeline.default import default_pipeline
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
    assert {step.name for step in steps} == set(PASSES) - {"shard-blocks", "separate-blocks"}
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
