"""What is emitted for execution providers that are not installed here: its structure, and the word for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.errors import ConfigError, UserError
from partc.ir.text import parse_module
from partc.pipeline.registry import load_target
from targets.ort import OrtTarget
from targets.ort.providers import PROVIDERS
from tests.bundle.tiny import module, write_checkpoint
from tests.targets.test_ort_attention import GROUPED, text

pytestmark = pytest.mark.ort


def operators(source: str, provider: str, dtype: str = "f32") -> list[str]:
    parsed = parse_module(
        source.replace("f32", dtype).replace('"name": "m"', f'"name": "m", "dtype": "{dtype}"')
    )
    (lowered,) = OrtTarget(provider=provider).lower([parsed.graph], parsed.info)
    return [node.op for node in lowered.nodes]


@pytest.mark.parametrize(
    ("provider", "dtype", "grouped"),
    [
        ("cpu", "f32", True),
        ("xnnpack", "f32", True),
        ("cuda", "f32", False),
        ("cuda", "f16", True),
        ("cuda", "bf16", True),
        ("tensorrt", "f32", False),
        ("tensorrt", "f16", True),
    ],
)
def test_attention_is_what_the_provider_takes(provider: str, dtype: str, grouped: bool) -> None:
    """GroupQueryAttention takes float16 and bfloat16 alone on GPUs; float32 goes the general way there."""
    found = operators(text(), provider, dtype)
    assert (GROUPED in found) is grouped
    assert ("TensorScatter" in found) is not grouped


def test_bfloat16_has_no_kernel_on_the_cpu() -> None:
    with pytest.raises(UserError, match="no kernel"):
        operators(text(), "cpu", "bf16")


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_products_of_integers_are_refused_on_gpus(provider: str) -> None:
    source = """partc-ir 1
model {"name": "m", "task": "graph"}
graph part_0 opset 24 {
input %x: f32[batch,32]
weight %d = i8[8, 32] from "m.safetensors"#"w" |> quantize(8,0)
weight %s = f32[8] from "m.safetensors"#"w" |> scales(8,0)
%y: f32[batch,8] = partc.QuantizedMatMul(%x, %d, %s) {bits=8, block=0}
output %y
}
"""
    with pytest.raises(UserError, match="no kernel") as caught:
        operators(source, provider)
    assert "int4" in (caught.value.hint or "")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_build_says_what_was_verified(tmp_path: Path, provider: str) -> None:
    compiled = module(write_checkpoint(tmp_path / "model"))
    for part in compiled.parts or ():
        target = load_target("ort", {"provider": provider})
        target.check()
        part.graphs = target.lower(part.graphs, compiled.info)
        folder = tmp_path / part.device
        folder.mkdir()
        artifact = target.emit(part, compiled.info, folder, lambda *_: None)
        assert artifact.engine.provider == provider
        assert artifact.toolkit["verified"].startswith("not run on" if provider != "cpu" else "kernels of")
        assert [path.suffix for path in sorted(folder.glob("*.onnx"))]  # onnx.checker has seen them


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ConfigError, match="no provider 'npu'"):
        OrtTarget(provider="npu").check()
