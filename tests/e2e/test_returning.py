"""Plans that come back to a device, the whole way: compiled, run as encrypted processes, compared with transformers."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest

from partc.cli.main import run
from partc.config.model import load_model_config
from partc.format.plan import PlanFile
from partc.frontend import load_module
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.pipeline.default import PHASES, configure
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass
from partc.planner.model.stages import held
from partc.verifier.origin import write_origin
from tests.families.check import devices_file

pytestmark = [pytest.mark.hf, pytest.mark.ort]

MODEL = """\
model:
  seed: 3
  config: {model_type: llama, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2,
           intermediate_size: 48, vocab_size: 120, max_position_embeddings: 128, tie_word_embeddings: true}
max_sequence: 96
max_batch: 2
max_requests: 3
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The IR of a tiny Llama with tied embeddings, ready to be planned, and its folder."""
    folder = tmp_path_factory.mktemp("returning")
    (folder / "model.yaml").write_text(MODEL)
    module = load_module(load_model_config(str(folder / "model.yaml")))
    run_passes(
        module, [load_pass(text) for phase in ("simplify", "cut", "measure") for text in PHASES[phase]]
    )
    return print_module(module), folder


def compiled(profiled: tuple[str, Path], ring: str, name: str) -> tuple[Module, Path]:
    """A build whose sub-modules are dealt out evenly over the intervals `ring`."""
    text, folder = profiled
    module = parse_module(text)
    count = len(module.submodules or ())
    assert count >= len(ring)
    module.plan = PlanFile.from_json(
        {"answer": {"assignment": [ring[i * len(ring) // count] for i in range(count)]}}
    )
    devices, build = devices_file(folder, 4), folder / name
    emit = [load_pass(text) for text in PHASES["emit"]]
    run_passes(module, configure(emit, devices, "optimal", "eq1+frontier", build))
    write_origin(build, str(folder / "model.yaml"))
    return module, build


def facts_of(build: Path, device: str) -> dict[str, Any]:
    return dict(json.loads((build / "devices" / device / "build.json").read_text()))


def placement_of(build: Path) -> dict[str, Any]:
    return dict(json.loads((build / "devices" / "a" / "placement.json").read_text()))


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("ring", ["aba", "abaca", "abcbdb"])
def test_tokens_are_identical(
    profiled: tuple[str, Path], ring: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three prompts in flight at once, then two of them in a batch; every value that crosses is compared."""
    module, build = compiled(profiled, ring, ring)
    assert sum(len(part.graphs) for part in module.parts or ()) == len(ring)
    assert placement_of(build)["ring"] == sorted(set(ring))
    assert run(["verify", str(build), "--tokens", "24", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["equal"]
    assert report["identical_tokens"]
    assert {(cut["sender"], cut["receiver"]) for cut in report["cuts"]} >= set(pairwise(ring))


def test_a_tied_embedding_of_two_intervals_is_stored_and_counted_once(profiled: tuple[str, Path]) -> None:
    from safetensors.numpy import load_file

    module, build = compiled(profiled, "aba", "tied")
    folder, facts = build / "devices" / "a", facts_of(build, "a")
    assert [entry["name"] for entry in facts["submodules"]] == ["part_0", "part_2"]
    assert facts["submodules"][1]["weights"] == ["weights/part_0.safetensors", "weights/part_2.safetensors"]
    files = [load_file(folder / "weights" / f"part_{n}.safetensors") for n in (0, 2)]
    assert [sum(array.size == 120 * 32 for array in file.values()) for file in files] == [1, 0]
    assert facts["memory"]["weights_bytes"] == sum(array.nbytes for file in files for array in file.values())
    assert module.profile is not None
    shared = module.profile[0].shared
    own = held(module.plan.stages if module.plan else ())["a"]
    expected = sum(module.profile[i].weight_bytes for i in own) + sum(shared.values())
    assert 0 <= expected - facts["memory"]["weights_bytes"] < 4096, "but for constants, which are no weights"
    head = onnx.load(folder / "part_2.onnx", load_external_data=False)
    (product,) = [node for node in head.graph.node if node.op_type == "Gemm"]
    assert product.input[1] in {tensor.name for tensor in head.graph.initializer}


def test_the_last_interval_on_the_source_returns_nothing(profiled: tuple[str, Path]) -> None:
    _, build = compiled(profiled, "aba", "home")
    program = placement_of(build)["programs"]["decode"]["a"].splitlines()
    assert [line.split()[0] for line in program] == ["run", "send", "recv", "run", "sample", "emit"]
    assert "token" not in placement_of(build)["programs"]["decode"]["b"]
