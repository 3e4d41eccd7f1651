"""`partc verify` of quantised builds, the whole way: compiled, run as processes, compared with the uncut model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from partc.cli.main import run
from partc.config.model import load_model_config
from partc.runtime.client.launch import launch_local
from partc.runtime.client.results import Crossing
from partc.verifier.compare import difference, join_steps
from partc.verifier.expectation import SameQuantization
from partc.verifier.inputs import Answer
from partc.verifier.uncut import UncutModel, compile_uncut
from tests.families.check import devices_file

pytestmark = pytest.mark.in_turns(3, whole=True)

MODEL = """\
model: {config: {model_type: llama, hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4,
  num_key_value_heads: 2, intermediate_size: 96, vocab_size: 200, max_position_embeddings: 128}, seed: SEED}
max_sequence: 64
max_batch: 2
quantize: {weights: int4, head: int8, embeddings: none}
"""
CLASSIFIER: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 90,
    "max_position_embeddings": 66,
    "num_labels": 5,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with imports kept in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def verify(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    capsys.readouterr()
    code = run(["verify", "build", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def compile_model(folder: Path) -> None:
    """model.yaml for three equal devices."""
    devices = str(devices_file(folder, 3))
    assert run(["compile", "model.yaml", "--target", devices, "--strategy", "even"]) == 0


@pytest.mark.hf
@pytest.mark.ort
def test_a_decoder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.yaml").write_text(MODEL.replace("SEED", "1"))
    (folder / "other.yaml").write_text(MODEL.replace("SEED", "2"))
    compile_model(folder)
    code, report = verify(capsys, "--tokens", "20")
    assert (code, report["equal"], report["identical_tokens"]) == (0, True, True)
    assert report["against"] == "the uncut model"
    check_cuts(report)
    cost = report["quantization"]
    assert (cost["weights"], cost["head"], cost["embeddings"]) == ("int4", "int8", "none")
    assert cost["tokens"] == 3 * 20  # what the original writes after each prompt, as there is no tokenizer
    assert 0 < cost["kl_nats"] < 0.1
    assert cost["perplexity"] != cost["perplexity_full"]
    code, report = verify(capsys, "--tokens", "20", "--no-cost", "--model", "other.yaml")
    assert (code, report["equal"]) == (1, False)
    assert "quantization" not in report
    assert run(["verify", "build", "--text", "other.yaml"]) == 1
    assert "the build has no tokenizer" in capsys.readouterr().err
    check_chunks(folder)


def check_cuts(report: dict[str, Any]) -> None:
    """Both cuts are compared with the uncut model, and what crosses them is not nothing."""
    assert len(report["cuts"]) == 2
    for cut in report["cuts"]:
        assert cut["largest"] > 0.1
        assert cut["max_abs_error"] <= 0.02 * max(1, cut["largest"])


def check_chunks(folder: Path) -> None:
    """A prompt in several steps, as a ring may take it, gives the tokens and the logits of one step."""
    (folder / "alone").mkdir()
    model = UncutModel(
        compile_uncut(load_model_config(folder / "model.yaml"), {"target": "ort"}, folder / "alone")
    )
    prompt = [5, 9, 2, 7, 100, 150, 3, 8]
    whole, parts = (model.generate([prompt], chunks, 6) for chunks in ([8], [5, 2, 1]))
    assert parts.tokens == whole.tokens
    assert len(parts.crossings) == len(whole.crossings) + 2
    for part, right in zip(parts.crossings[2:], whole.crossings, strict=True):
        np.testing.assert_allclose(part.values[model.output], right.values[model.output], atol=0.05)


@pytest.mark.hf
@pytest.mark.tvm
def test_weights_and_caches_of_8_bits_on_tvm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cut model has the tokens of the uncut one of the same kind, a quarter of the caches, and a small cost."""
    text = MODEL.replace("SEED", "1").replace("max_batch: 2", "max_batch: 1")
    precision = "{weights: int4, head: int8, embeddings: none}"
    (folder / "model.yaml").write_text(text.replace(precision, "{weights: int8, cache: int8}"))
    devices = str(devices_file(folder, 3, ("tvm",)))
    assert run(["compile", "model.yaml", "--target", devices, "--strategy", "even"]) == 0
    code, report = verify(capsys, "--tokens", "20")
    assert (code, report["equal"], report["identical_tokens"]) == (0, True, True)
    assert report["against"] == "the uncut model"
    check_cuts(report)
    cost = report["quantization"]
    assert (cost["weights"], cost["cache"]) == ("int8", "int8")
    assert 0 < cost["kl_nats"] < 1e-3
    layouts = {
        (state["dtype"], state["layout"])
        for name in "abc"
        for submodule in json.loads((folder / f"build/devices/{name}/build.json").read_text())["submodules"]
        for state in submodule["states"]
    }
    assert layouts == {("int8", "panels"), ("int8", "plain"), ("float32", "panels")}


@pytest.mark.hf
@pytest.mark.ort
def test_a_classifier(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import CONFIG_MAPPING

    from partc.frontend.trace.export import MODEL_CLASSES
    from tests.families.tiny import initialise

    network = MODEL_CLASSES["text-classification"].from_config(CONFIG_MAPPING["bert"](**CLASSIFIER)).eval()
    initialise(network, 0)
    network.save_pretrained(folder / "checkpoint")
    lines = ("model: ./checkpoint", "task: text-classification", "max_sequence: 40", "quantize: int8")
    (folder / "model.yaml").write_text("\n".join(lines) + "\n")
    compile_model(folder)
    code, report = verify(capsys)
    assert (code, report["equal"], report["identical_tokens"]) == (0, True, None)
    cost = report["quantization"]
    assert cost["tokens"] == len(report["cases"]) == 3
    assert 0 <= cost["top1_agreement"] <= 1
    assert 0 < cost["kl_nats"] < 0.5
    assert cost["perplexity"] is None
    assert cost["max_abs_error"] > 1e-4


TRANSLATOR = """\
model: {config: {model_type: t5, vocab_size: 90, d_model: 32, d_kv: 8, d_ff: 48, num_heads: 4, num_layers: 2,
  num_decoder_layers: 3, decoder_start_token_id: 0}, seed: 4}
task: text2text-generation
max_sequence: 24
max_source: 24
max_batch: 2
"""


@pytest.mark.hf
@pytest.mark.ort
def test_an_encoder_and_a_decoder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is compared with a ring of one device: tokens of lone requests and of a batch."""
    (folder / "model.yaml").write_text(TRANSLATOR + "quantize: int8\n")
    (folder / "other.yaml").write_text(TRANSLATOR.replace("seed: 4", "seed: 5") + "quantize: int8\n")
    compile_model(folder)
    code, report = verify(capsys, "--tokens", "10")
    assert (code, report["equal"], report["identical_tokens"]) == (0, True, True)
    assert report["against"] == "the uncut model"
    assert report["not_compared"] and not report["cuts"]
    code, report = verify(capsys, "--tokens", "10", "--model", "other.yaml")
    assert (code, report["equal"]) == (1, False)
    assert run(["verify", "build", "--text", "other.yaml"]) == 1
    assert "the cost of quantisation is not measured for text2text-generation" in capsys.readouterr().err


@pytest.mark.hf
@pytest.mark.ort
def test_a_decoder_of_more_layers_than_its_encoder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """transformers' own cache has the layers of the encoder alone."""
    (folder / "model.yaml").write_text(TRANSLATOR)
    compile_model(folder)
    code, report = verify(capsys, "--tokens", "10")
    assert (code, report["equal"], report["identical_tokens"]) == (0, True, True)


@pytest.mark.hf
@pytest.mark.ort
def test_sums_whose_rows_are_in_one_axis_with_their_sequences(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shared expert's product has no axis for sequences; on the links of the ring it has."""
    (folder / "model.yaml").write_text("""\
model: {config: {model_type: qwen2_moe, vocab_size: 90, hidden_size: 32, intermediate_size: 48,
  moe_intermediate_size: 16, shared_expert_intermediate_size: 48, num_experts: 2, num_experts_per_tok: 2,
  num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2}, seed: 4}
max_sequence: 32
max_batch: 1
quantize: int8
""")
    devices = str(devices_file(folder, 2))
    assert run(["compile", "model.yaml", "--target", devices, "--strategy", "megatron"]) == 0
    code, report = verify(capsys, "--tokens", "10", "--no-cost")
    assert any("shared_expert" in cut["value"] for cut in report["cuts"])
    assert all(np.isfinite(cut["max_abs_error"]) for cut in report["cuts"])
    assert (code, report["equal"]) == (0, True)


@pytest.mark.hf
@pytest.mark.ort
def test_a_long_prompt_on_one_device(folder: Path) -> None:
    """It goes in parts there too, and gives what it gives as a whole."""
    text = MODEL.replace("SEED", "1").replace("{weights: int4, head: int8, embeddings: none}", "int8")
    text = text.replace("max_position_embeddings: 128", "max_position_embeddings: 256")
    (folder / "model.yaml").write_text(text.replace("max_sequence: 64", "max_sequence: 200"))
    assert run(["compile", "model.yaml", "--target", str(devices_file(folder, 1))]) == 0
    prompt = [int(token) for token in np.random.default_rng(0).integers(0, 200, 150)]
    with launch_local(folder / "build") as ring, ring.client() as client:
        model = client.role.model
        result = client.generate(prompt, 6, ignore_eos=True, trace=True)
    assert model.prompt_chunk == 128
    assert min(crossing.step for crossing in result.trace) == 1, "two parts"
    (logits,) = join_steps(result.trace).values()
    for size in (None, 128):
        uncut = SameQuantization(
            folder / "build" / "devices" / "a", structs.replace(model, prompt_chunk=size)
        )
        tokens, right = uncut.generate(Answer(prompt, result))
        assert tokens == result.tokens[0]
        np.testing.assert_allclose(logits, right, atol=1e-5)
    _, other = uncut.generate(Answer([(prompt[0] + 1) % 200, *prompt[1:]], result))
    assert difference(logits, other) > 1e-3


def test_values_of_a_prompt_in_parts_are_joined() -> None:
    rows = (5, 3, 1, 1)
    trace = [
        Crossing("b", "a", step, {"hidden": np.full((1, count, 4), step, np.float32)})
        for step, count in enumerate(rows)
    ]
    joined = join_steps(trace[::-1])["hidden", "a", "b"]
    assert joined.shape == (1, sum(rows), 4)
    assert joined[0, :, 0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 3]
