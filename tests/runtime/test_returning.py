"""Rings of devices that a step comes back to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from partc.errors import BundleError
from partc.format.role import load_role
from partc.runtime.engines.contract import load_engine
from tests.runtime.bundles import HIDDEN, Build, Device, Part, expected_tokens, make_model, reseal
from tests.runtime.returning import PROGRAM_B, returning_model
from tests.runtime.runners import Runners

PROMPTS = [[1, 2, 5], [4], [7, 8, 9, 10, 11]]
COUNT = 12


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return returning_model("null").write(tmp_path_factory.mktemp("returning") / "build")


@pytest.mark.ort
def test_an_encrypted_ring(tmp_path: Path, runners: Runners) -> None:
    """Alone, in a batch and in flight with others: each gets the tokens of the whole model."""
    build = returning_model().write(tmp_path / "build")
    with runners.launch(build) as ring, ring.client() as client:
        alone = [client.generate(prompt, COUNT, ignore_eos=True).tokens[0] for prompt in PROMPTS]
        assert alone == [expected_tokens(prompt, COUNT) for prompt in PROMPTS]
        assert client.generate(PROMPTS, COUNT, ignore_eos=True).tokens == alone
        prompts = [*PROMPTS, *PROMPTS]
        requests = [client.submit(prompt, max_new_tokens=COUNT, ignore_eos=True) for prompt in prompts]
        assert [request.result().tokens[0] for request in requests] == [*alone, *alone]
        result = client.generate(PROMPTS[0], 2, ignore_eos=True, trace=True)
    crossed = sorted((item.step, item.peer, item.device, *item.values) for item in result.trace)
    links = [("a", "b", "hidden_1"), ("a", "b", "sum"), ("b", "a", "hidden_2"), ("b", "a", "token")]
    assert crossed == sorted((step, *link) for step in range(2) for link in [*links, ("b", "b", "logits")])
    assert result.timings["b"].column("received_bytes")[0] == 2 * 3 * HIDDEN * 4


@pytest.mark.ort
def test_submodules_of_one_device_share_the_memory_of_their_activations(tmp_path: Path) -> None:
    """Each of the four holds 96 MB while it runs; together they keep little more than one does."""
    rows, count = 1 << 14, 4
    build = _large_activations(count).write(tmp_path / "build")
    folder = build / "devices" / "a"
    engine = load_engine(load_role(folder), folder)
    engine.reset(0, {"rows": rows})
    before = _resident_bytes()
    for _ in range(2):
        for number in range(count):
            engine.run(f"part_{number}", 0, [np.ones((rows, HIDDEN), np.float32)], {"rows": rows})
    assert _resident_bytes() - before < 2 * rows * 1536 * 4


def _large_activations(count: int) -> Build:
    """Parts whose largest value is f32[rows, 1536]."""
    shape: list[int | str] = ["rows", HIDDEN]
    parts, lines = [], []
    for number in range(count):
        source, target = f"v{number}", f"v{number + 1}"
        nodes = [
            helper.make_node("MatMul", [source, "wide"], ["large"]),
            helper.make_node("MatMul", ["large", "narrow"], [target]),
        ]
        weights = {"wide": np.ones((HIDDEN, 1536), np.float32), "narrow": np.ones((1536, HIDDEN), np.float32)}
        model = make_model(nodes, [(source, "float32", shape)], [(target, "float32", shape)], weights)
        parts.append(Part(f"part_{number}", [source], [target], model))
        lines.append(f"run part_{number} ({source}) -> ({target})\n")
    last = f"v{count}"
    values = {f"v{number}": ("float32", shape) for number in range(1, count + 1)}
    device = Device(parts, {"prefill": "".join([*lines, f"emit {last}\n"])}, values)
    ends = [("v0", "float32", shape)], [(last, "float32", shape)]
    return Build({"a": device}, *ends, dims={"rows": 1 << 14}, task="graph")


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_a_message_stands_in_a_program_once(build: Path, tmp_path: Path) -> None:
    shutil.copytree(build / "devices" / "b", tmp_path / "b")
    path = tmp_path / "b" / "placement.json"
    programs = json.loads(path.read_text())["programs"]
    programs["prefill"]["b"] = "recv hidden_1 from a\n" + PROGRAM_B
    reseal(path, programs=programs)
    with pytest.raises(BundleError, match="waits for hidden_1 from a, which does not send just that, once"):
        load_role(tmp_path / "b")
