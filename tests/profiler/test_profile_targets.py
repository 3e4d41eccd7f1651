"""Profiles for the targets that run models: what is written for a device can be loaded there, and measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.format.role import load_role
from partc.runtime.engines.contract import load_engine

ROOT = Path(__file__).parents[2]
MODEL = """\
model:
  config: {{model_type: llama, vocab_size: 97, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2,
           num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 8192}}
  seed: 1
task: text-generation
{more}
"""
DEVICES = """\
source: a
devices:
  a: {{target: {target}, threads: 1, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 4 GiB{options}}}
"""
FEW = ", options: {chunks: [16]}"
CASES = [
    pytest.param("tvm", "max_sequence: 64", FEW, marks=pytest.mark.tvm, id="tvm"),
    pytest.param(
        "tvm", "{quantize: int4, max_batch: 3, max_sequence: 64}", FEW, marks=pytest.mark.tvm, id="tvm-int4"
    ),
    pytest.param("ort", "max_sequence: 6000", "", marks=pytest.mark.ort, id="ort-long"),
    pytest.param("ort", "{quantize: int8, max_batch: 3}", "", marks=pytest.mark.ort, id="ort-int8"),
]
"""Target, more of model.yaml (`max_requests` has its default), and more of the device."""

pytestmark = [pytest.mark.hf, pytest.mark.in_turns(3)]


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(("target", "more", "options"), CASES)
def test_what_is_prepared_for_a_device_can_be_loaded_there(
    target: str, more: str, options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library has code for what the build says: no more requests, sequences or tokens."""
    lines = more.strip("{}").replace(", ", "\n")
    (tmp_path / "model.yaml").write_text(MODEL.format(more=lines))
    (tmp_path / "devices.yaml").write_text(DEVICES.format(target=target, options=options))
    files = [str(tmp_path / "model.yaml"), "--target", str(tmp_path / "devices.yaml")]
    assert run(["profile", *files, "-o", str(tmp_path / "profile"), "--quick", "--prepare"]) == 0
    place = tmp_path / "profile" / "devices" / "a"
    role = load_role(place)
    assert role.model.max_requests == 1, "one request is measured at a time"
    load_engine(role, place)
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.tvm
def test_the_example_is_profiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = ROOT / "examples" / "storyteller"
    files = [str(story / "model.yaml"), "--target", str(story / "devices.yaml")]
    assert run(["profile", *files, "-o", str(tmp_path / "p"), "--quick"]) == 0
    times = json.loads((tmp_path / "p" / "times.json").read_text())
    assert times["devices"].keys() == {"phone", "board", "old"}
    capsys.readouterr()
