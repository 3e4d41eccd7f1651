"""Options of the command line reach the passes that have them, and never replace what a pass was given."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from partc.pipeline.default import configure, default_pipeline
from partc.pipeline.registry import load_passes

ARGUMENTS = (Path("d.yaml"), "even", "eq1", Path("out"))


def test_every_option_has_its_pass() -> None:
    steps = default_pipeline(*ARGUMENTS, disable=["swish", "bias"])
    assert {step.name: options for step in steps if (options := asdict(step))} == {
        "canonicalize": {"max_constant_bytes": 65536},
        "fuse-operators": {"disable": "swish"},
        "find-cuts": {"rule": "eq1"},
        "coarsen-submodules": {**asdict(load_passes("coarsen-submodules")[0]), "rule": "eq1"},
        "partition-graph": {"devices": "d.yaml", "strategy": "even"},
        "overlap-submodules": {"devices": "d.yaml"},
        "split-graph": {"devices": "d.yaml"},
        "lower-target": {"devices": "d.yaml", "disable": "bias"},
        "emit-bundle": {"devices": "d.yaml", "output": "out", "reuse": True},
    }


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("find-cuts{rule=eq1+frontier}", "rule", "eq1+frontier"),
        ("partition-graph{strategy=optimal}", "strategy", "optimal"),
        ("partition-graph{devices=devices.yaml}", "devices", "devices.yaml"),
        ("split-graph{devices=}", "devices", ""),
        ("emit-bundle{output=build}", "output", "build"),
    ],
)
def test_what_a_pass_was_given_stays_even_where_it_is_the_default(text: str, option: str, value: str) -> None:
    (step,) = configure(load_passes(text), *ARGUMENTS)
    assert getattr(step, option) == value
