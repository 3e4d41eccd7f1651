"""`partc verify` of quantised builds, the whole way: compiled, run as processes, compared with the uncut model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.cli.main import run
from partc.config.model import load_model_config
from partc.runtime.manifest import TensorType
from partc.runtime.results import Crossing
from partc.verify.compare import join_steps
from partc.verify.quantized import chunks
from partc.verify.uncut import UncutModel, compile_uncut
from tests.families.check import devices_file

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
    assert len(report["cuts"]) == 2
    assert all(cut["max_abs_error"] <= 0.02 * max(1, cut["largest"]) for cut in report["cuts"])
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
@pytest.mark.ort
def test_a_classifier(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import CONFIG_MAPPING

    from partc.frontend.export import MODEL_CLASSES
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


def test_chunks_are_those_that_crossed_a_link() -> None:
    types = {
        "hidden": TensorType("float32", ("batch", "sequence", 4)),
        "last": TensorType("float32", ("batch", 1, 4)),
        "token": TensorType("int64", ("batch",)),
    }

    def crossing(step: int, rows: int) -> Crossing:
        return Crossing("b", "a", step, {"hidden": np.zeros((1, rows, 4), np.float32)})

    trace = [crossing(0, 5), crossing(1, 3), crossing(2, 1), crossing(3, 1)]
    assert chunks(trace, types, 8) == [5, 3]
    assert chunks(trace[2:], types, 1) == [1]
    back = Crossing("a", "b", 0, {"token": np.zeros(1, np.int64), "last": np.zeros((1, 1, 4), np.float32)})
    assert chunks([back], types, 8) == [8]
    assert chunks([], types, 8) == [8]
    assert join_steps(trace)["hidden", "a", "b"].shape == (1, 10, 4)
