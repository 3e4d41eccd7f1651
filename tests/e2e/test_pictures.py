"""A picture through a ring of processes: the labels are those of transformers, and the picture stays on the source."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from partc.cli.main import run

pytestmark = [pytest.mark.hf, pytest.mark.ort]

DEVICES = """
source: camera
devices:
  camera: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GiB, threads: 1}
  board: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GiB, threads: 1}
links: {default: {bandwidth: 1 Gbit/s, latency: 1 ms}}
"""


@pytest.mark.in_turns(2)
def test_a_picture_is_classified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    from tests.families.tensors import save_family

    monkeypatch.chdir(tmp_path)
    save_family("vit", tmp_path / "checkpoint")
    sizes = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    Path("checkpoint/preprocessor_config.json").write_text(json.dumps(sizes))
    colours = np.random.default_rng(0).integers(0, 256, (50, 70, 3)).astype(np.uint8)
    Image.fromarray(colours).save("photo.png")
    Path("model.yaml").write_text("model: ./checkpoint\ntask: image-classification\n")
    Path("devices.yaml").write_text(DEVICES)
    assert run(["compile", "model.yaml", "--target", "devices.yaml", "--strategy", "even"]) == 0
    assert [path.parent.name for path in Path("build").glob("devices/*/preprocessor")] == ["camera"]
    capsys.readouterr()
    assert run(["run", "build", "--image", "photo.png", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    pixels = AutoImageProcessor.from_pretrained("checkpoint")(Image.open("photo.png"), return_tensors="pt")
    with torch.no_grad():
        right = AutoModelForImageClassification.from_pretrained("checkpoint")(**pixels).logits.numpy()
    assert answer["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    np.testing.assert_allclose(answer["requests"][0]["outputs"]["logits"], right, atol=1e-4)
    best = answer["requests"][0]["scores"][0][0]
    assert best["label"] == f"LABEL_{right.argmax()}"
    assert best["score"] == pytest.approx(np.exp(right.max()) / np.exp(right).sum(), abs=1e-4)
    assert run(["verify", "build"]) == 0
    assert "outputs equal" in capsys.readouterr().out
    assert run(["run", "build", "--prompt", "text"]) != 0
    assert "hint: give --image FILE" in capsys.readouterr().err
