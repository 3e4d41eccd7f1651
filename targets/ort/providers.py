"""The execution providers of onnxruntime as the lowering knows them: operators, element types, speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from partc.errors import ConfigError


@dataclass(frozen=True)
class Provider:
    """One execution provider."""

    attention: frozenset[str]
    """Element types that its GroupQueryAttention takes; attention in others goes the general way."""
    slow: frozenset[str] = frozenset()
    """Fusions that are slower than what they fuse, or whose operator it does not have."""
    prompt_chunk: int | None = None
    """Tokens of a prompt at a time that are fastest on a device that computes alone; None: all at once."""
    is_gpu: bool = False
    """Whether it has kernels of its own for every element type; they are not installed where partc compiles."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Entries of the session's configuration."""
    verified: str = "not run on hardware"
    """The checks that a bundle went through when it was compiled, for build.json."""


PROMPT_CHUNK = 128
"""For a single device that computes on its CPU, where nothing flows at the same time.

onnxruntime's attention computes the whole square of a step's scores, half of which the mask hides; in parts it computes
less of that half, and the scores stay in the caches. A prompt of 512 on one thread of an x86, against one step:
1.00-1.01 times as fast with float32 weights, 1.10-1.11 with int8, 1.05-1.07 with int4 (12 layers of 768), 1.00 with
int4 at 22 layers of 2048. Parts of 64 gave 0.93-0.96, 1.06 and 1.04: too few rows for fast matrix products.
"""

_CPU = Provider(
    prompt_chunk=PROMPT_CHUNK,
    attention=frozenset({"f32", "f16"}),
    # Its kernels for these are scalar: a sum and a norm of 512 rows of 768 take 0.2 ms, in one operator 0.5 ms (RMS) or
    # 2.1 ms (layer norm); one row takes 1.2 or 2.6 times as long.
    slow=frozenset({"skip-normalization"}),
    # The same fusions, which onnxruntime does by itself when it loads a graph.
    options={
        "optimization.disable_specified_optimizers": "SkipLayerNormFusion;BiasSkipLayerNormFusion;BiasGeluFusion"
    },
)
_GPU_ATTENTION = frozenset({"f16", "bf16"})
PROVIDERS: Mapping[str, Provider] = {
    "cpu": replace(_CPU, verified="kernels of this onnxruntime; not run when compiled"),
    "xnnpack": _CPU,
    "cuda": Provider(_GPU_ATTENTION, frozenset({"bias"}), is_gpu=True),
    # Its parser knows operators of ONNX; those of com.microsoft run on the CUDA provider behind it.
    "tensorrt": Provider(
        _GPU_ATTENTION, frozenset({"bias", "activation", "skip-normalization"}), is_gpu=True
    ),
}
"""Provider by the name that devices.yaml uses. XNNPACK takes convolutions and products, all else runs on the CPU's."""


def find_provider(name: str) -> Provider:
    """The provider of that name.

    Raises:
        ConfigError: the target has none of that name.
    """
    if name not in PROVIDERS:
        hint = f"providers: {', '.join(PROVIDERS)}"
        raise ConfigError(f"the ort target has no provider {name!r}", where="provider", hint=hint)
    return PROVIDERS[name]
