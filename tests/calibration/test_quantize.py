"""`partc quantize`, from a checkpoint and a text to a build of the new checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from partc.cli.main import run
from partc.errors import ModelError

pytestmark = pytest.mark.hf

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
TEXT = "".join(chr(97 + (7 * place * place + place // 3) % 26) for place in range(400))
DEVICES = """
source: a
devices:
  a: {target: ort, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 64 MB}
  b: {target: ort, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 64 MB}
links: {default: {bandwidth: 1 Gbit/s, latency: 10 us}}
place: {a: layer 0, b: layer 1}
"""


def checkpoint(folder: Path, kind: str = "llama", **more: Any) -> Path:
    """A model of random weights with a tokenizer of letters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    torch.manual_seed(3)
    config = CONFIG_MAPPING[kind](**{**SIZES, **more})
    maker = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    maker.from_config(config).save_pretrained(folder)
    made = Tokenizer(models.WordLevel({chr(32 + number): number for number in range(95)}, unk_token="~"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def quantize(model: Path | str, folder: Path, text: str = TEXT, *more: str) -> int:
    texts = folder / "texts.txt"
    texts.write_text(text)
    return run(["quantize", str(model), "--texts", str(texts), "-o", str(folder / "new"), *more])


@pytest.mark.ort
@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {}),
        ("gemma2", {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 8}),
        (
            "qwen3_moe",
            {"head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2},
        ),
    ],
)
def test_the_new_checkpoint_is_compiled_integer_for_integer(
    kind: str, more: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole, cut and with transformers, which decodes it by its own library."""
    import torch
    from transformers import AutoModelForCausalLM

    plain = checkpoint(tmp_path / "plain", kind, **more)
    assert quantize(plain, tmp_path, TEXT, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["error"] < told["by_itself"]
    (tmp_path / "devices.yaml").write_text(DEVICES)
    model = tmp_path / "model.yaml"
    model.write_text("model: new\nmax_sequence: 64\n")
    build = str(tmp_path / "build")
    assert run(["compile", str(model), "--target", str(tmp_path / "devices.yaml"), "-o", build]) == 0
    assert run(["verify", build, "--no-cost", "--tokens", "12"]) == 0
    if kind == "qwen3_moe":
        return  # transformers reads no compressed-tensors whose experts are floats
    ids = torch.arange(40)[None] % 90
    with torch.no_grad():
        old, new = (
            AutoModelForCausalLM.from_pretrained(place)(ids).logits for place in (plain, tmp_path / "new")
        )
    assert 0 < float((old - new).abs().max()) < 0.5 * float(old.abs().max())


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "gemma2": {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 8},
    "phi": {},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_layer_is_called_with_what_the_one_before_it_made(kind: str) -> None:
    """Layer by layer the result is that of the network, for other windows, too."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from partc.calibration.layers import calls_of, check_alike, first_input, layers_of

    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**{**SIZES, **FAMILIES[kind]})).eval()
    windows = [torch.randint(0, 90, (1, 24)) for _ in range(2)]
    kept: list[torch.Tensor] = []
    with torch.no_grad():
        _, layers = layers_of(network)
        calls = calls_of(network, layers, windows[0])
        check_alike(calls, calls_of(network, layers, windows[1]))
        hidden = first_input(network, layers[0], windows[1])
        for layer, call in zip(layers, calls, strict=True):
            hidden = call.run(layer, hidden)
        hook = layers[-1].register_forward_hook(
            lambda layer, given, made: kept.append(made[0] if isinstance(made, tuple) else made)
        )
        network(windows[1])
        hook.remove()
    torch.testing.assert_close(hidden, kept[0])


def test_layers_that_read_more_of_a_token_are_refused() -> None:
    import torch

    from partc.calibration.layers import Call, check_alike

    calls = [
        [Call((torch.zeros(2), token), {"mask": None}, False)] for token in (torch.ones(1), torch.zeros(1))
    ]
    check_alike(calls[0], calls[0])
    with pytest.raises(ModelError, match="read tokens beside"):
        check_alike(calls[0], calls[1])


def test_a_checkpoint_in_16_bits_stays_one(tmp_path: Path) -> None:
    """Scales have its type, and were rounded to it before errors were made up for."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    from partc.calibration.quantizing import quantize_checkpoint

    plain, half = checkpoint(tmp_path / "plain"), tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(plain).to(torch.bfloat16).save_pretrained(half)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(plain / file, half / file)
    (tmp_path / "texts.txt").write_text(TEXT)
    found = quantize_checkpoint(str(half), tmp_path / "texts.txt", tmp_path / "new")
    assert found.error < found.by_itself
    tensors = load_file(tmp_path / "new" / "model.safetensors")
    assert {tensor.dtype for name, tensor in tensors.items() if name.endswith(("_scale", "norm.weight"))} == {
        torch.bfloat16
    }


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = checkpoint(tmp_path / "plain")
    (tmp_path / "random.yaml").write_text("model: {config: {model_type: llama}}\n")
    (tmp_path / "t5.yaml").write_text("model: plain\ntask: text2text-generation\n")
    for model, text, message in (
        (plain, "abc", "3 tokens are too few"),
        (tmp_path / "random.yaml", TEXT, "takes a checkpoint in a folder or on the hub"),
        (tmp_path / "t5.yaml", TEXT, "reads more than a text"),
        (tmp_path / "nowhere", TEXT, "nowhere"),
    ):
        assert quantize(model, tmp_path, text) == 1
        assert message in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
    assert quantize(plain, tmp_path) == 0
    assert quantize(plain, tmp_path) == 1
    assert "there is something already" in capsys.readouterr().err
    texts = str(tmp_path / "texts.txt")
    assert run(["quantize", str(tmp_path / "new"), "--texts", texts, "-o", str(tmp_path / "again")]) == 1
    assert "it is quantised already, by compressed-tensors" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
