"""Builds in which long prompts go through the ring in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from partc.bundle.describe import PROMPT_CHUNK, EmittedPart, describe_builds
from partc.format.build import EngineSpec
from partc.pipeline.contract import Artifact
from partc.pipeline.registry import load_target
from targets.ort.providers import PROVIDERS
from tests.bundle.tiny import module, write_checkpoint

CAN, CANNOT_SAY = EngineSpec("ort", chunked_prefill=False), EngineSpec("ort")
ON_GPU = EngineSpec("ort", "cuda", chunked_prefill=False)
ALONE = 128
NULL = load_target("null")


def alone(engine: EngineSpec) -> int | None:
    """The part of a prompt that a target names for a device that computes alone."""
    return None if engine is ON_GPU else ALONE


def chunks(
    folder: Path, engines: Sequence[EngineSpec], max_sequence: int, devices: int = 2
) -> set[int | None]:
    """`model.prompt_chunk` of every build; both devices of the model have states."""
    made = module(write_checkpoint(folder), "null")
    made.info = replace(made.info, max_sequence=max_sequence)
    pairs = zip(made.parts or (), engines, strict=True)
    parts = [EmittedPart(part, NULL, Artifact((), engine, {}, alone(engine)), {}) for part, engine in pairs]
    return {build.model.prompt_chunk for build in describe_builds(made, parts[:devices], None).values()}


def test_a_ring_whose_engines_say_that_they_can(tmp_path: Path) -> None:
    """An engine that takes parts of one sequence only says so, too: it is one sequence that goes in parts."""
    assert chunks(tmp_path, [CAN, ON_GPU], 1024) == {PROMPT_CHUNK}


def test_a_single_device_takes_longer_parts(tmp_path: Path) -> None:
    assert chunks(tmp_path, [CAN, CAN], 1024, devices=1) == {ALONE}


@pytest.mark.parametrize(
    ("engines", "max_sequence", "devices"),
    [
        ([CAN, CANNOT_SAY], 1024, 2),
        ([CAN, CAN], PROMPT_CHUNK, 2),
        ([CANNOT_SAY, CAN], 1024, 1),
        ([CAN, CAN], ALONE, 1),
        ([ON_GPU, CAN], 1024, 1),
    ],
    ids=[
        "an engine that says nothing",
        "no prompt so long",
        "alone, says nothing",
        "alone, short",
        "alone, a GPU",
    ],
)
def test_whole_prompts(tmp_path: Path, engines: list[EngineSpec], max_sequence: int, devices: int) -> None:
    assert chunks(tmp_path, engines, max_sequence, devices) == {None}


def test_processors_take_prompts_in_parts_and_gpus_do_not() -> None:
    chosen = {name: provider.prompt_chunk for name, provider in PROVIDERS.items()}
    assert chosen == {"cpu": ALONE, "xnnpack": ALONE, "cuda": None, "tensorrt": None}


def steps(
    folder: Path, costs: Sequence[dict[int, float]], devices: int = 2
) -> set[tuple[tuple[int, int], ...]]:
    """`model.prompt_steps` of every build, for a longest sequence of 1024."""
    made = module(write_checkpoint(folder), "null")
    made.info = replace(made.info, max_sequence=1024)
    parts = [
        EmittedPart(part, NULL, Artifact((), CAN, {}, step_costs=each), {})
        for part, each in zip(made.parts or (), costs, strict=True)
    ]
    return {build.model.prompt_steps for build in describe_builds(made, parts[:devices], None).values()}


def test_the_sizes_of_steps_are_those_that_all_devices_have(tmp_path: Path) -> None:
    one, other = {1: 1.3, 16: 7.4, 32: 13.8, 512: 205.8}, {1: 1.1, 16: 9.0, 512: 150.0}
    assert steps(tmp_path, [one, other]) == {((1, 1300), (16, 9000))}, (
        "no more rows than a ring takes at once"
    )
    assert steps(tmp_path, [one, {}]) == {((1, 1300), (16, 7400), (32, 13800))}, "the other takes any number"
    assert steps(tmp_path, [one, other], devices=1) == {((1, 1300), (16, 7400), (32, 13800), (512, 205800))}
    assert steps(tmp_path, [{}, {}]) == {()}
