"""Bundles of the tvm target, the whole way: compiled, run as encrypted processes, compared with transformers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from partc.cli.main import run

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.tvm]

EOS = 2
"""The end token of a Llama whose config does not name it."""
ROOT = Path(__file__).parents[2]
MODEL = """\
model:
  seed: 4
  config: {model_type: llama, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2,
           intermediate_size: 48, vocab_size: 120, max_position_embeddings: 128, tie_word_embeddings: true}
max_sequence: 96
max_batch: 2
max_requests: 3
"""
DEVICES = """\
source: a
devices:
  a: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GB}
  b: {target: tvm, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GB, options: {chunks: [16]}}
  c: {target: tvm, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GB, threads: 2, options: {chunks: []}}
links:
  default: {bandwidth: 1 Gbit/s, latency: 1 ms}
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama over a device with onnxruntime and two with TVM."""
    folder = tmp_path_factory.mktemp("tvm bundles")
    (folder / "model.yaml").write_text(MODEL)
    (folder / "devices.yaml").write_text(DEVICES)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "--strategy", "even", "-o", str(folder / "build")]) == 0
    return folder / "build"


def test_tokens_are_identical(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prompts of 1, 7 and 33 tokens in flight at once, then two of them in a batch; every cut is compared."""
    engines = [json.loads((build / "devices" / name / "build.json").read_text())["engine"] for name in "abc"]
    assert [engine["kind"] for engine in engines] == ["ort", "plan", "plan"]
    (functions,) = engines[1]["library"]["functions"].values()
    assert functions["entries"] == [
        [1, 1],
        [1, 16],
        [1, 96],
        [2, 1],
        [2, 16],
        [2, 96],
        [3, 1],
        [4, 1],
        [8, 1],
    ]
    capsys.readouterr()
    assert run(["verify", str(build), "--tokens", "24", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["equal"] and report["identical_tokens"]
    assert {(cut["sender"], cut["receiver"]) for cut in report["cuts"]} == {("a", "b"), ("b", "c")}


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("precision", "batch"), [("int4", 2), ("{weights: int4, block: 64, head: int8}", 1), ("int8", 1)]
)
def test_a_quantised_ring_gives_the_tokens_of_the_uncut_model(
    precision: str, batch: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are compiled by TVM, for few sizes of step; a tied table is stored once, in panels."""
    model = MODEL.replace("max_batch: 2", f"max_batch: {batch}")
    (tmp_path / "model.yaml").write_text(f"{model}quantize: {precision}\n")
    devices = DEVICES.replace("{target: ort,", "{target: tvm, options: {chunks: []},")
    (tmp_path / "devices.yaml").write_text(devices)
    files = [str(tmp_path / "model.yaml"), "--target", str(tmp_path / "devices.yaml")]
    assert run(["compile", *files, "--strategy", "even", "-o", str(tmp_path / "build")]) == 0
    capsys.readouterr()
    assert run(["verify", str(tmp_path / "build"), "--tokens", "24", "--no-cost", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["equal"] and report["identical_tokens"]


def test_more_requests_than_slots(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Slots are used again, and what is sampled with a seed comes again."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(1, 120, size).tolist() for size in (3, 20, 11, 5, 17)]
    ids = [word for prompt in prompts for word in ("--token-ids", ",".join(map(str, prompt)))]
    drawn = []
    for _ in range(2):
        options = ["--tokens", "8", "--temperature", "0.9", "--seed", "5", "--json"]
        assert run(["run", str(build), *ids, *options]) == 0
        drawn.append([item["tokens"] for item in json.loads(capsys.readouterr().out)["requests"]])
    assert drawn[0] == drawn[1] and len(drawn[0]) == 5
    assert all(len(row) == 8 or row[-1] == EOS for (row,) in drawn[0])


def damaged(build: Path, folder: Path) -> Path:
    shutil.copytree(build, folder)
    return folder / "devices" / "c" / "library.so"


def refused(build: Path, message: str) -> None:
    """The runner of c says why it does not start, and leaves nothing behind; the run ends with exit code 1."""
    before = sorted(path for path in build.rglob("*"))
    command = [sys.executable, "-m", "partc.cli", "run", str(build), "--token-ids", "1,2"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1 and message in result.stderr and "Traceback" not in result.stderr
    assert sorted(path for path in build.rglob("*")) == before


def test_a_library_with_one_byte_changed(build: Path, tmp_path: Path) -> None:
    library = damaged(build, tmp_path / "build")
    data = bytearray(library.read_bytes())
    data[len(data) // 3] ^= 4
    library.write_bytes(data)
    refused(tmp_path / "build", "the file is damaged: its SHA-256 is not that of build.json")


def test_a_library_of_another_plan(build: Path, tmp_path: Path) -> None:
    library = damaged(build, tmp_path / "build")
    library.write_bytes((build / "devices" / "b" / "library.so").read_bytes())
    refused(tmp_path / "build", "the file is damaged: its SHA-256 is not that of build.json")


def test_a_kernel_plan_of_another_device(build: Path, tmp_path: Path) -> None:
    plan = damaged(build, tmp_path / "build").with_name("kernels.json")
    plan.write_bytes((build / "devices" / "b" / "kernels.json").read_bytes())
    refused(tmp_path / "build", "the file is damaged: its SHA-256 is not that of build.json")


def test_a_device_folder_of_another_plan(build: Path, tmp_path: Path) -> None:
    """Whole and right in itself, but another ring's: its peers do not take it."""
    from partc.format.names import BUILD_FILE, PLACEMENT_FILE
    from tests.runtime.bundles import reseal

    library = damaged(build, tmp_path / "build")
    for file in (BUILD_FILE, PLACEMENT_FILE):
        reseal(library.parent / file, plan_id="0" * 64)
    refused(tmp_path / "build", "copy the folders of one build to all devices")
