"""Models of every kind through TVM, cut in three: tokens, logits and cuts against transformers.

The few that differ most in what they compute run always, the rest of the families that partc promises with `-m slow`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder, OnnxFile
from partc.verifier.reference import open_reference
from tests.families.check import (
    MAX_SEQUENCE,
    TOLERANCE,
    compile_ring,
    devices_file,
    largest_error,
    sample_prompts,
    save_tiny,
    simplified,
)
from tests.families.half import check_half, half_model
from tests.families.test_encoders import DECODERS, ENCODERS, compare
from tests.families.test_onnx_files import write_network
from tests.families.test_required import REQUIRED
from tests.families.tiny import tiny_config

pytestmark = [pytest.mark.tvm, pytest.mark.hf]

TOKENS = 32
DISTINCT = {
    "gemma2": ("ort", "tvm"),  # windows, softcap, gated products, rotation, tied embeddings
    "gpt2": ("tvm",),  # a table of positions, LayerNormalization, Gemm
    "gpt_oss": ("tvm", "ort", "tvm"),  # mixture of experts, sinks
}
"""Family → targets of its devices, the last for all the rest."""
HALF = ("gpt2", "gemma2", "llama")
"""Without experts: one is chosen or not, and near ties of a router change everything behind it."""


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    "family",
    # `test_half_precision` and tests/families/test_processes.py run GPT-2 on this target, too.
    [pytest.param(family, marks=pytest.mark.slow if family == "gpt2" else ()) for family in DISTINCT],
)
def test_family(family: str, tmp_path: Path) -> None:
    check(family, tmp_path, DISTINCT[family])


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family in (*REQUIRED, "mixtral") if family not in DISTINCT])
def test_other_family(family: str, tmp_path: Path) -> None:
    check(family, tmp_path, ("tvm",))


def check(family: str, folder: Path, targets: tuple[str, ...]) -> None:
    """Prompts one by one and as one batch of unequal lengths; every number of the single ones."""
    save_tiny(tiny_config(family), folder / "checkpoint")
    config = ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=MAX_SEQUENCE, max_batch=3, max_requests=3
    )
    reference = open_reference(config)
    prompts = sample_prompts(97)
    expected = [reference.generate(prompt, TOKENS) for prompt in prompts]
    ring = compile_ring(simplified(config), folder / "build", devices_file(folder, 3, targets))
    assert [ring.generate([prompt], TOKENS)[0] for prompt in prompts] == expected
    for number, (prompt, right) in enumerate(zip(prompts, expected, strict=True), start=1):
        assert largest_error(ring.trace[number], reference, prompt, right) <= TOLERANCE
    assert ring.generate(prompts, TOKENS) == expected


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        pytest.param(family, dtype, marks=() if first else pytest.mark.slow)
        for family in HALF
        for dtype in ("float16", "bfloat16")
        for first in [(family, dtype) == ("gpt2", "bfloat16")]
    ],
)
def test_half_precision(family: str, dtype: str, tmp_path: Path) -> None:
    config = half_model(family, dtype, tmp_path)
    ring = compile_ring(simplified(config), tmp_path / "build", devices_file(tmp_path, 3, ("tvm",)))
    check_half(ring, config, TOKENS)


@pytest.mark.in_turns(2)
def test_classifier(tmp_path: Path) -> None:
    """Rows and sentences of padding stand around what is classified."""
    compare("bert", ENCODERS["bert"], "text-classification", tmp_path, ("tvm",))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["feature-extraction", "text-classification"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_encoder(kind: str, task: str, tmp_path: Path) -> None:
    compare(kind, ENCODERS[kind], task, tmp_path, ("tvm",))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DECODERS)
def test_classification_with_a_decoder(kind: str, tmp_path: Path) -> None:
    compare(kind, DECODERS[kind], "text-classification", tmp_path, ("tvm",))


def test_convolution_network(tmp_path: Path) -> None:
    """Two images where the code is for three."""
    output = write_network(tmp_path / "net.onnx", long_skip=True)
    config = ModelConfig(OnnxFile(tmp_path / "net.onnx"), task="graph", max_batch=3)
    ring = compile_ring(simplified(config), tmp_path / "build", devices_file(tmp_path, 3, ("tvm",)))
    images = np.random.default_rng(5).standard_normal((2, 3, 16, 16)).astype(np.float32)
    session = ort.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    (right,) = session.run([output], {"image": images})
    np.testing.assert_allclose(ring.outputs({"image": images})[output], right, atol=1e-5, rtol=0)
