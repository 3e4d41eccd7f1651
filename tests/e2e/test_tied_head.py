"""A model whose head is tied to its embedding, on a source that has room for both but not for the layers between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.planner.model.plan_file import PLAN_FILE, read_plan
from partc.runtime.client.launch import launch_local
from tests.e2e.kills import drawn

pytestmark = [pytest.mark.hf, pytest.mark.tvm, pytest.mark.in_turns(3, whole=True)]

MODEL = """\
model:
  seed: 4
  config: {model_type: llama, hidden_size: 64, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 2,
           intermediate_size: 160, vocab_size: 4000, max_position_embeddings: 64, tie_word_embeddings: true}
max_sequence: 48
max_requests: 2
"""
DEVICES = """\
source: phone
survive: one
devices:
  phone: {target: tvm, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1700 kB}
  board: {target: tvm, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1060 kB}
  laptop: {target: tvm, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1060 kB}
links:
  default: {bandwidth: 1 Gbit/s, latency: 1 ms}
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tied")
    (folder / "model.yaml").write_text(MODEL)
    (folder / "devices.yaml").write_text(DEVICES)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder / "build"


def test_the_plan_comes_back_to_the_source(build: Path) -> None:
    answer = read_plan(build / PLAN_FILE)["answer"]
    assignment = answer["assignment"]
    assert assignment[0] == assignment[-1] == "phone" and set(assignment) > {"phone"}
    assert answer["gap"] == 0.0
    assert answer["explain"]["returns"].startswith("returns to phone: no plan fits")


def test_without_returns_nothing_fits(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    devices = build.parent / "devices.yaml"
    devices.write_text(DEVICES.replace("survive", "returns: 0\nsurvive"))
    assert run(["plan", str(build.parent / "model.yaml"), "--target", str(devices)]) == 1
    assert "write `returns: any`" in capsys.readouterr().err


def test_a_throughput_returns_where_nothing_else_fits(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = build.parent / "devices.yaml"
    devices.write_text(DEVICES.replace("survive: one", "objective: throughput"))
    assert run(["plan", str(build.parent / "model.yaml"), "--target", str(devices)]) == 0
    assert "returns to phone: no plan fits" in " ".join(capsys.readouterr().out.split())


def test_its_tokens_are_those_of_the_model(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["verify", str(build), "--tokens", "12", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["equal"] and report["identical_tokens"]


def test_a_killed_device_takes_no_token_with_it(build: Path) -> None:
    """The others go over to a plan that comes back to the source as well."""
    assignment = read_plan(build / PLAN_FILE)["answer"]["assignment"]
    victim = next(name for name in assignment if name != "phone")
    assert drawn(build, victim) == drawn(build)


def test_two_requests_at_once_have_the_tokens_of_each_alone(build: Path) -> None:
    prompts = [list(range(3, 14)), list(range(40, 45))]
    with launch_local(build) as ring, ring.client() as client:
        alone = [client.submit([prompt], max_new_tokens=16).result().tokens for prompt in prompts]
        both = [client.submit([prompt], max_new_tokens=16, reuse=True) for prompt in prompts]
        assert [request.result().tokens for request in both] == alone
