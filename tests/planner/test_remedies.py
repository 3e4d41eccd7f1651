"""The advice where no plan fits: for each kind of constraint, in the user's own keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partc.config.devices import DeviceConfig, DevicesConfig
from partc.ir.graph import ModelInfo, PhaseCost, SubmoduleProfile
from partc.planner.explain.remedies import model_remedy, problem_remedy
from partc.planner.model.problem import Device, Problem, Submodule

MIB = 2**20
DEVICES = DevicesConfig("a", {"a": DeviceConfig("a", "null", "x86_64", 1e9, 1e9, 64 * MIB)})


def info(**changes: int) -> ModelInfo:
    sizes = {"max_sequence": 64, "max_batch": 1, "max_requests": 1, "prompt": 32, "generate": 32, **changes}
    return ModelInfo("m", "text-generation", ".", None, "f32", **sizes)  # type: ignore[arg-type]


def profile(weights: int, states: int, peak: int = 0) -> list[SubmoduleProfile]:
    return [SubmoduleProfile(weights, states, {"prefill": PhaseCost(1, 1, peak)}, {}) for _ in range(4)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"max_requests": 4},
            "lower max_requests (4), which saves up to 6.00 MiB; or add a device or memory",
        ),
        ({"max_sequence": 640, "max_requests": 4}, "lower max_sequence (640), which saves up to 7.20 MiB"),
        ({"max_batch": 8, "max_requests": 4}, "lower max_batch (8), which saves up to 7.00 MiB"),
        ({}, "the weights take 4.00 MiB: add a device or memory"),
    ],
)
def test_the_largest_lever_of_memory_is_named(changes: dict[str, int], expected: str) -> None:
    said = model_remedy(info(**changes), profile(MIB, 2 * MIB), DEVICES, "memory: too little")
    assert said.startswith(expected)


def test_the_overhead_is_a_lever() -> None:
    devices = replace(DEVICES, devices={"a": replace(DEVICES.devices["a"], overhead_bytes=3 * MIB)})
    said = model_remedy(info(max_requests=4), profile(MIB, 1000), devices, "memory: too little")
    assert said.startswith("lower the `overhead` of devices, which saves up to 3.00 MiB")


@pytest.mark.parametrize(
    ("kind", "models", "problems"),
    [
        ("links", "`links` of devices.yaml", "add the missing link to `links`"),
        ("times", "remove the pin or ban", "add a time to `time_s`"),
        ("source", "takes it from a", "add `a` to `time_s` of sub-module 0"),
    ],
)
def test_other_kinds(kind: str, models: str, problems: str) -> None:
    problem = Problem("latency", "a", (Device("a", 1.0),), (Submodule(1.0, {}),), ())
    assert models in model_remedy(info(), profile(1, 1), DEVICES, f"{kind}: cannot be met")
    assert problems in problem_remedy(problem, f"{kind}: cannot be met")
    assert "`memory_bytes`" in problem_remedy(problem, "memory: too little")
