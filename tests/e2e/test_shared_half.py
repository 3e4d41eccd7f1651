"""Groups of devices that share blocks of models in 16 bits, whose sums are made in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.check import compile_ring, devices_file, simplified
from tests.families.half import check_half, half_model

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.tvm]
TOKENS = 24


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    ("family", "dtype", "target", "strategy"),
    [
        ("llama", "float16", "ort", "galaxy"),
        ("llama", "bfloat16", "tvm", "megatron"),
        ("gpt2", "float16", "tvm", "galaxy"),
        ("gpt2", "bfloat16", "tvm", "sequence-parallel"),
        ("gemma2", "float16", "tvm", "optimal-groups"),
    ],
)
def test_a_group_is_as_exact_as_one_device(
    family: str, dtype: str, target: str, strategy: str, tmp_path: Path
) -> None:
    """GPT-2 has biases, which are added behind the sum, and Llama has none. Each part is rounded before it is sent."""
    config = half_model(family, dtype, tmp_path)
    devices = devices_file(tmp_path, 2, (target,))
    ring = compile_ring(simplified(config), tmp_path / "build", devices, strategy=strategy)
    check_half(ring, config, TOKENS, most=1.6)


@pytest.mark.in_turns(2)
def test_sums_are_made_in_float32(tmp_path: Path) -> None:
    config = half_model("llama", "float16", tmp_path)
    devices = devices_file(tmp_path, 2, ("ort",))
    ring = compile_ring(simplified(config), tmp_path / "build", devices, strategy="megatron")
    sums = {name: each.dtype for name, each in ring.roles["a"].build.values.items() if name.endswith(".sum")}
    assert len(sums) == 8  # two for each of four layers
    assert set(sums.values()) == {"float32"}
