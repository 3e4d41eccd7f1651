"""Rings with a GPU among processors: through OpenCL, and onnxruntime's and TVM's code for processors beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.config.model import load_model_config
from partc.format.kernel_plan import KERNELS_FILE
from partc.format.kernel_plan_rules import load_kernel_plan
from partc.format.message_parts import Sampling
from partc.format.role import load_role
from partc.runtime.client.launch import launch_local
from partc.verifier.reference import open_reference
from tests.e2e.kills import TOKENS, drawn
from tests.families.ring import DirectRing

pytestmark = [
    pytest.mark.hf,
    pytest.mark.ort,
    pytest.mark.tvm,
    pytest.mark.opencl,
    pytest.mark.in_turns(8, whole=True),
]

MODEL = """\
model:
  seed: 4
  config: {model_type: llama, hidden_size: 32, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 2,
           intermediate_size: 48, vocab_size: 120, max_position_embeddings: 64, tie_word_embeddings: true}
max_sequence: 48
max_batch: 1
max_requests: 2
"""
FIGURES = "flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 100 MB, runner: python"
FEW = "options: {chunks: [8], batches: []}"
DEVICES = f"""\
source: phone
survive: one
overlap: 1
place: {{phone: layers 0-1, board: layers 2-3, old: layers 4-5}}
devices:
  phone: {{target: ort, {FIGURES}}}
  board: {{target: tvm, provider: opencl, {FIGURES}, {FEW}}}
  old: {{target: tvm, {FIGURES}, {FEW}}}
links:
  default: {{bandwidth: 1 Gbit/s, latency: 1 ms}}
"""
MOVED = "8"
"""The last sub-module of `board`, which `phone` has on its disk, too."""
PROMPT = list(range(3, 14))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "model.yaml").write_text(MODEL)
    (folder / "devices.yaml").write_text(DEVICES)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder / "build"


def test_tokens_are_those_of_the_uncut_model(build: Path) -> None:
    """Prompts of 1, 7, 9 and 33 tokens, over steps of 1, 8 and 48 rows."""
    engines = {name: load_role(build / "devices" / name).engine for name in ("phone", "board", "old")}
    assert [(one.kind, one.provider) for one in engines.values()] == [
        ("ort", "cpu"), ("gpu", "opencl"), ("plan", "cpu"),
    ]  # fmt: skip
    reference = open_reference(load_model_config(str(build.parent / "model.yaml")))
    ring = DirectRing(build)
    prompts = [[(7 * place + length) % 120 for place in range(length)] for length in (1, 7, 9, 33)]
    for prompt in prompts:
        assert ring.generate([prompt], 8)[0] == reference.generate(prompt, 8), len(prompt)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["board", "old"])
def test_a_killed_device_takes_no_token_with_it(build: Path, lost: str) -> None:
    """The GPU itself, or the processor whose layers go over to the GPU."""
    expected = drawn(build)
    assert len(set(expected[0])) > 4, "a model that says one thing only proves nothing"
    assert drawn(build, lost) == expected


@pytest.mark.parametrize("shares", [False, True])
def test_four_clients_at_once(build: Path, shares: bool) -> None:
    """Each gets what it gets alone; two are under way, in turns or in steps that they share, and two wait."""
    assert load_role(build / "devices" / "phone").model.step_requests == 2
    prompts = [[(7 * place + length) % 120 for place in range(length)] for length in (1, 7, 9, 33)]
    with launch_local(build) as ring, ring.client() as alone:
        expected = [alone.generate([prompt], 12).tokens for prompt in prompts]
        clients = [ring.client() for _ in prompts]
        requests = [
            client.submit([p], max_new_tokens=12, reuse=shares)
            for client, p in zip(clients, prompts, strict=True)
        ]
        assert [request.result().tokens for request in requests] == expected
        for client in clients:
            client.close()
    assert len({tuple(tokens) for (tokens,) in expected}) == len(prompts)


@pytest.mark.slow
def test_a_gpu_that_comes_back_takes_its_work_again(build: Path) -> None:
    """Killed while a text is written, and started again; a second text goes through it."""
    expected = drawn(build)
    assert drawn(build, "board", texts=2) == (*expected, *expected)


@pytest.mark.slow
def test_a_piece_that_moves_from_a_gpu_and_back(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rows go with it, while a text is written."""
    expected = drawn(build)
    with launch_local(build) as ring, ring.client() as client:
        for device in ("phone", "board"):
            request = client.submit(
                [PROMPT],
                max_new_tokens=TOKENS,
                sampling=Sampling(temperature=1.0, seed=5),
                ignore_eos=True,
            )
            client.wait([request], 0.05)
            capsys.readouterr()
            options = ["--connect", ring.source, "--json"]
            assert run(["move", str(build), "--submodules", MOVED, "--to", device, *options]) == 0
            assert json.loads(capsys.readouterr().out)["moved"]
            assert tuple(map(tuple, request.result().tokens)) == expected


def test_a_token_of_a_layer_is_five_launches(tmp_path: Path) -> None:
    """Each costs a Jetson 5 to 10 microseconds: products of one x, attention, and two more products with what is
    around them."""
    calls = []
    for layers in (1, 2):
        model, devices = tmp_path / "model.yaml", tmp_path / "devices.yaml"
        model.write_text(MODEL.replace("num_hidden_layers: 6", f"num_hidden_layers: {layers}"))
        devices.write_text(
            f"source: gpu\ndevices: {{gpu: {{target: tvm, provider: opencl, {FIGURES}, {FEW}}}}}\n"
        )
        build = tmp_path / f"build{layers}"
        assert run(["compile", str(model), "--target", str(devices), "-o", str(build)]) == 0
        plan = load_kernel_plan(build / "devices" / "gpu" / KERNELS_FILE)
        (token,) = [function for name, function in plan.functions.items() if name.endswith("b1_s1")]
        calls.append(len(token.calls))
    assert calls[1] - calls[0] == 5
