"""Notes about a model: code of its own that was not used is named once, in the words of the user's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.config.sources import CheckpointFolder, OnnxFile, RandomModel
from partc.frontend.folder import notes_about

CODE = {"auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}}


def test_a_checkpoint_that_brings_code(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CODE))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CODE))
    (tmp_path / "preprocessor_config.json").write_text("{}")
    (note,) = notes_about(CheckpointFolder(tmp_path))
    assert note.startswith(f"config.json and tokenizer_config.json of {tmp_path.name} name code of its own")
    assert "not touched" in note and "transformers' own classes" in note


def test_a_config_that_brings_code() -> None:
    (note,) = notes_about(RandomModel({"model_type": "phi3", **CODE}, 0))
    assert "the config of random-phi3 names code of its own" in note


def test_no_code_no_note(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"auto_map": {}}')
    assert notes_about(CheckpointFolder(tmp_path)) == []
    assert notes_about(RandomModel({"model_type": "phi3"}, 0)) == []
    assert notes_about(OnnxFile(tmp_path / "net.onnx")) == []


@pytest.mark.hf
def test_the_config_of_a_random_model_may_name_code() -> None:
    from partc.errors import ModelError
    from partc.frontend.source import open_source

    assert open_source(RandomModel({"model_type": "phi3", **CODE}, 0)).config.model_type == "phi3"
    with pytest.raises(ModelError, match=r"code of its own.*no 'own_phi'"):
        open_source(RandomModel({"model_type": "own_phi", **CODE}, 0))
    with pytest.raises(ModelError, match="quantised by GPTQ"):
        open_source(RandomModel({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}, 0))
