"""Tiny families in int8 and int4, cut in three, on both targets."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from partc.ir.text import parse_module
from tests.families.quantized import PRECISIONS, Tiny, check_quantized, import_tiny
from tests.families.test_required import REQUIRED
from tests.families.tiny import tiny_config

pytestmark = [pytest.mark.hf]

DISTINCT = ("gemma2", "gpt2")
"""Grouped heads, windows, softcaps and an embedding that is the head too; fused q-k-v with biases."""
EXPERTS = {"mixtral": 8, "qwen2_moe": 8, "gpt_oss": 8}
"""Mixtures of experts → products with them: stacked from tensors of their own, beside a shared one, turned in one."""
OPERATORS = {"int8": "MatMulInteger", "int4": "MatMulNBits"}
"""Precision → what an operator of its products is called in ONNX, at least in part."""
OTHERS = [family for family in (*REQUIRED, *EXPERTS) if family not in DISTINCT]
STATES = {
    "lfm2": "short convolutions beside attention",
    "mamba2": "a decay for every head",
    "qwen3_next": "gated delta rule beside attention",
    "rwkv": "a weighted mean of every channel",
    "llama4_text": "attention in chunks; prompts of one request have equal length",
    "deepseek_v3": "latent attention",
}
"""Families whose states or caches are of another kind."""


@pytest.mark.in_turns(8)
@pytest.mark.ort
@pytest.mark.parametrize("family", [*DISTINCT, *(pytest.param(f, marks=pytest.mark.slow) for f in OTHERS)])
def test_ort(family: str, tmp_path: Path) -> None:
    tiny = _import(family, tmp_path, "ort")
    _check(tiny, "int4")
    assert OPERATORS["int4"] in " ".join(_operators(tmp_path / "int43"))
    if family == "gpt2":
        pytest.skip("activations of 7 or 8 bits: near ties of this tiny model fall otherwise where it is cut")
    _check(tiny, "int8", "attention", "position")
    assert OPERATORS["int8"] in " ".join(_operators(tmp_path / "int83"))


@pytest.mark.in_turns(3)
@pytest.mark.tvm
@pytest.mark.parametrize(
    ("family", "precision"),
    [
        pytest.param(family, precision, marks=() if first else pytest.mark.slow)
        for family in (*DISTINCT, *OTHERS)
        for precision in PRECISIONS
        for first in [(family, precision) == ("gemma2", "int4")]
    ],
)
def test_tvm(family: str, precision: str, tmp_path: Path) -> None:
    _check(_import(family, tmp_path, "tvm"), precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param("ort", marks=pytest.mark.ort), pytest.param("tvm", marks=pytest.mark.tvm)]
)
@pytest.mark.parametrize("family", STATES)
def test_states(family: str, target: str, tmp_path: Path) -> None:
    _check(_import(family, tmp_path, target), "int4")


@pytest.mark.in_turns(3)
@pytest.mark.ort
@pytest.mark.parametrize(
    "family",
    ["mixtral", *(pytest.param(name, marks=pytest.mark.slow) for name in EXPERTS if name != "mixtral")],
)
def test_experts_are_quantised(family: str, tmp_path: Path) -> None:
    tiny = _import(family, tmp_path, "ort")
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


def _import(family: str, folder: Path, target: str) -> Tiny:
    return import_tiny(family, tiny_config(family), folder, target)


def _check(tiny: Tiny, precision: str, *wrong: str) -> None:
    result = check_quantized(tiny, precision, wrong)
    assert result.equal, result.detail
    assert all(result.controls.values()), result.controls


def _operators(build: Path) -> set[str]:
    """The operators of all graphs of a build."""
    graphs = [onnx.load(path, load_external_data=False).graph for path in build.glob("devices/*/*.onnx")]
    return {node.op_type for graph in graphs for node in graph.node}
