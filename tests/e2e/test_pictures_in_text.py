"""A picture among the tokens of a prompt, through a ring of processes: the answer is that of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.cli.main import run

pytestmark = [pytest.mark.hf, pytest.mark.ort]

PICTURE, ROWS, COUNT = 6, 4, 12
"""The token in whose place features go, how many a picture has, and the tokens of an answer."""
QUESTION = "what is this"
DEVICES = """
source: phone
devices:
  phone: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GiB, threads: 1}
  board: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GiB, threads: 1}
  old: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GiB, threads: 1}
links: {default: {bandwidth: 1 Gbit/s, latency: 1 ms}}
"""


@pytest.mark.in_turns(6)
def test_a_question_about_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    network = _save_checkpoint(tmp_path / "checkpoint")
    for seed in (0, 1):
        colours = np.random.default_rng(seed).integers(0, 256, (50, 70, 3)).astype(np.uint8)
        Image.fromarray(colours).save(f"photo{seed}.png")
    Path("model.yaml").write_text(
        "model: ./checkpoint\ntask: image-text-to-text\nmax_sequence: 64\nworkload: {prompt: 8, generate: 8}\n"
    )
    Path("devices.yaml").write_text(DEVICES)
    assert run(["compile", "model.yaml", "--target", "devices.yaml", "--strategy", "even"]) == 0
    capsys.readouterr()
    asked = ["run", "build", "--prompt", QUESTION, "--tokens", str(COUNT), "--json"]
    assert run([*asked, "--image", "photo0.png"]) == 0
    answer = json.loads(capsys.readouterr().out)["requests"][0]["tokens"][0]
    expected = [_expected(network, f"photo{seed}.png") for seed in (0, 1)]
    assert expected[0] != expected[1], "the answer depends on the picture"
    assert answer == expected[0]
    assert run(["verify", "build"]) == 0
    assert "32 tokens and a random input   32 of 32" in capsys.readouterr().out
    assert run(["run", "build", "--image", "photo0.png"]) != 0
    assert "hint: give --prompt TEXT, too" in capsys.readouterr().err


def _save_checkpoint(folder: Path) -> Any:
    """A LLaVA of random weights with a preprocessor and a tokenizer of words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        CLIPImageProcessor,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    text = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    vision = CLIPVisionConfig(
        hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32,
        patch_size=16, projection_dim=24,
    )  # fmt: skip
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_id=PICTURE)
    torch.manual_seed(0)
    network = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
        network.get_output_embeddings().weight[PICTURE] = 0
    network.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=size).save_pretrained(folder)
    words = {word: place for place, word in enumerate(["<unk>", "<s>", "</s>", *QUESTION.split()])}
    tokenizer = Tokenizer(models.WordLevel({**words, "<image>": PICTURE}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return network.eval()


def _expected(network: Any, photo: str) -> list[int]:
    """Greedy tokens of transformers behind the picture and the question."""
    import torch
    from PIL import Image
    from tokenizers import Tokenizer
    from transformers import CLIPImageProcessor

    process = CLIPImageProcessor.from_pretrained("checkpoint")
    pixels = process(Image.open(photo).convert("RGB"), return_tensors="pt")["pixel_values"]
    ids = Tokenizer.from_file("checkpoint/tokenizer.json").encode(QUESTION).ids
    prompt = torch.tensor([[PICTURE] * ROWS + ids])
    with torch.no_grad():
        made = network.generate(
            input_ids=prompt, pixel_values=pixels, attention_mask=torch.ones_like(prompt),
            max_new_tokens=COUNT, do_sample=False, pad_token_id=0,
        )  # fmt: skip
    answer: list[int] = made[0, prompt.shape[1] :].tolist()
    return answer
