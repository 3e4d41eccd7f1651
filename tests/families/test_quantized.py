"""Tiny families in int8 and int4: cut in three they give the tokens of the same quantised model on one device.

transformers cannot say what these tokens are, so the uncut model does; that its graph is right the tests of the same
families in full precision prove. Controls: quantising must change the logits, a spoiled part must change the tokens,
and the wrong compiles of `check.py` must change either: a random model may say one token for ever, whatever its
positions are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file

from partc.config.model import CheckpointFolder, ModelConfig
from partc.format.dtypes import Array
from partc.frontend import load_module
from partc.ir.graph import Module
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module, print_module
from partc.pipeline.default import PHASES
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass
from partc.verify.report import QUANTIZED_TOLERANCE
from tests.families.check import (
    CONTROLS,
    MAX_SEQUENCE,
    PROMPTS,
    compile_ring,
    devices_file,
    sample_prompts,
    save_tiny,
)
from tests.families.ring import DirectRing
from tests.families.test_required import REQUIRED
from tests.families.tiny import tiny_config

pytestmark = [pytest.mark.hf, pytest.mark.ort]

TOKENS = 32
DISTINCT = ("llama", "gemma2", "gpt2")
"""Grouped heads; windows, softcaps and an embedding that is the head too; fused q-k-v with biases."""
EXPERTS = {"mixtral": 8, "qwen2_moe": 8, "gpt_oss": 8}
"""Mixtures of experts → products with them: stacked from tensors of their own, beside a shared one, turned in one."""
OPERATORS = {"int8": "MatMulInteger", "int4": "MatMulNBits"}
"""Precision → what an operator of its products is called, at least in part."""


@dataclass(frozen=True)
class Tiny:
    """A tiny checkpoint, imported once."""

    folder: Path
    module: str
    """Its IR as text, not yet simplified."""

    def quantized(self, precision: str) -> str:
        """The IR in that precision before it is cut."""
        module = parse_module(self.module)
        whole = None if precision == "none" else Quantization(precision, precision, precision)
        module.info = replace(module.info, quantize=whole)
        run_passes(module, [load_pass(text) for text in PHASES["simplify"]])
        return print_module(module)

    def ring(
        self, text: str, name: str, devices: int, mutate: Callable[[Module], None] | None = None
    ) -> DirectRing:
        """Compiled for so many devices."""
        return compile_ring(text, self.folder / name, devices_file(self.folder, devices), mutate)


@pytest.mark.parametrize("family", DISTINCT)
def test_family(family: str, tmp_path: Path) -> None:
    check(family, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family in (*REQUIRED, *EXPERTS) if family not in DISTINCT])
def test_other_family(family: str, tmp_path: Path) -> None:
    check(family, tmp_path)


@pytest.mark.parametrize(
    "family",
    ["mixtral", *(pytest.param(name, marks=pytest.mark.slow) for name in EXPERTS if name != "mixtral")],
)
def test_experts_are_quantised(family: str, tmp_path: Path) -> None:
    tiny = import_tiny(family, tmp_path)
    for precision in OPERATORS:
        graph = parse_module(tiny.quantized(precision)).graph
        assert [node.op for node in graph.nodes].count("partc.QuantizedExperts") == EXPERTS[family]
        plain = [
            weight for weight in graph.weights() if weight.dtype == "f32" and "scales" not in weight.name
        ]
        assert all(len(weight.shape or ()) < 3 for weight in plain)
        assert (
            sum(weight.bytes({}) for weight in plain)
            < sum(weight.bytes({}) for weight in graph.weights()) / 4
        )


def check(family: str, folder: Path) -> None:
    """Both precisions of a family, with all controls."""
    tiny = import_tiny(family, folder)
    prompts = sample_prompts(97)
    texts = {precision: tiny.quantized(precision) for precision in ("none", *OPERATORS)}
    uncut = {precision: tiny.ring(text, f"{precision}1", 1) for precision, text in texts.items()}
    right = {precision: generate(ring, prompts) for precision, ring in uncut.items()}
    for precision, operator in OPERATORS.items():
        assert largest_error(uncut[precision], uncut["none"]) > 1e-3, "quantising changed nothing"
        cut = tiny.ring(texts[precision], f"{precision}3", 3)
        assert len(cut.roles) == 3
        assert operator in " ".join(operators(tiny.folder / f"{precision}3"))
        assert generate(cut, prompts) == right[precision]
        together = cut.generate_together([[prompt] for prompt in prompts], TOKENS)
        assert [batch[0] for batch in together] == right[precision]
        assert generate_batch(cut, prompts[:2]) == generate_batch(uncut[precision], prompts[:2])
        assert largest_error(cut, uncut[precision]) <= QUANTIZED_TOLERANCE
        assert generate(spoiled(tiny, f"{precision}3"), prompts) != right[precision]
    for name in ("attention", "position"):
        wrong = tiny.ring(texts["int8"], name, 3, CONTROLS[name])
        found = generate(wrong, prompts)
        error = largest_error(wrong, uncut["int8"])
        assert found != right["int8"] or error > QUANTIZED_TOLERANCE, f"control {name}"


def import_tiny(family: str, folder: Path) -> Tiny:
    """Write the checkpoint and import it."""
    save_tiny(tiny_config(family), folder / "checkpoint")
    config = ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=MAX_SEQUENCE, max_batch=2, max_requests=3
    )
    return Tiny(folder, print_module(load_module(config)))


def generate(ring: DirectRing, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens for every prompt alone."""
    return [ring.generate([prompt], TOKENS)[0] for prompt in prompts]


def generate_batch(ring: DirectRing, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens for prompts of unequal length in one batch."""
    return ring.generate(prompts, TOKENS)


def largest_error(cut: DirectRing, uncut: DirectRing) -> float:
    """Of the logits of all requests of both so far, per largest value."""
    found, right = (np.concatenate([step.reshape(-1) for step in logits(ring)]) for ring in (cut, uncut))
    return float(np.abs(found - right).max() / np.abs(right).max())


def logits(ring: DirectRing) -> list[Array]:
    """Of every step of the requests for each prompt alone, which come first."""
    crossings = [item for request in range(1, len(PROMPTS) + 1) for item in ring.trace[request]]
    return [array for item in crossings if item.peer == item.device for array in item.values.values()]


def operators(build: Path) -> set[str]:
    """The operators of all graphs of a build."""
    graphs = [onnx.load(path, load_external_data=False).graph for path in build.glob("devices/*/*.onnx")]
    return {node.op_type for graph in graphs for node in graph.node}


def spoiled(tiny: Tiny, name: str) -> DirectRing:
    """The ring of a build in which the largest quantised weight of the second device has its rows in another order."""
    (file,) = (tiny.folder / name / "devices" / "b" / "weights").iterdir()
    tensors = load_file(file)
    own = {key for key, tensor in tensors.items() if tensor.dtype in (np.uint8, np.int8)}
    largest = max(own, key=lambda key: (tensors[key].nbytes, key))
    before = file.read_bytes()
    array = tensors[largest]
    at = before.index(array.tobytes())
    file.write_bytes(before[:at] + array[::-1].tobytes() + before[at + array.nbytes :])
    return DirectRing(tiny.folder / name)
