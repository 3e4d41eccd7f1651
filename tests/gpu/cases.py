"""The models that are tried on a GPU: small ones of many forms for right numbers, larger ones for speed."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.bench.llamas import SHAPES

_SMALL = {
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 600,
    "max_position_embeddings": 512,
}


@dataclass(frozen=True)
class Case:
    """A model, and how it is compiled."""

    name: str
    config: dict[str, object] = field(hash=False)
    quantize: str = "none"
    dtype: str = "float32"
    max_sequence: int = 256
    chunks: tuple[int, ...] = (8, 32)
    is_timed: bool = False
    """It has no expected numbers: its weights are made where it runs."""

    @property
    def reference(self) -> str:
        """The provider whose numbers are expected."""
        return "opencl" if self.dtype == "float32" else "cpu"

    @property
    def model(self) -> dict[str, object]:
        """The content of model.yaml."""
        return {
            "model": {"config": self.config},
            "dtype": self.dtype,
            "max_sequence": self.max_sequence,
            "quantize": {"cache": "int8"} if self.quantize == "cache" else self.quantize,
        }


def _llama(**changes: object) -> dict[str, object]:
    return {"model_type": "llama", **_SMALL, **changes}


CASES = (
    Case("llama", _llama()),
    Case("llama-int4", _llama(), "int4"),
    Case("llama-int8", _llama(), "int8"),
    Case("llama-cache8", _llama(), "cache"),
    Case("llama-bf16", _llama(), dtype="bfloat16"),
    Case("llama-f16", _llama(), dtype="float16"),
    Case("llama-odd", _llama(hidden_size=96, intermediate_size=230, head_dim=40, vocab_size=517), "int4"),
    Case("gemma2-int4", {"model_type": "gemma2", **_SMALL, "head_dim": 32, "sliding_window": 16}, "int4"),
    Case("qwen3", {"model_type": "qwen3", **_SMALL, "head_dim": 32}),
    Case("mixtral-int4", {"model_type": "mixtral", **_SMALL, "num_local_experts": 4}, "int4"),
    Case("gpt_oss", {"model_type": "gpt_oss", **_SMALL, "head_dim": 32, "num_local_experts": 4,
                     "sliding_window": 16}),
    Case("mamba2", {"model_type": "mamba2", "hidden_size": 128, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 32,
                    "n_groups": 2, "state_size": 32, "vocab_size": 600}),
    Case("qwen3_next-int4", {"model_type": "qwen3_next", **_SMALL, "num_hidden_layers": 4, "head_dim": 32,
                             "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
                             "linear_value_head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2,
                             "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}, "int4"),
    Case("gpt2", {"model_type": "gpt2", "n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 600,
                  "n_positions": 512}),
    Case("opt", {"model_type": "opt", "hidden_size": 128, "ffn_dim": 320, "num_hidden_layers": 3,
                 "num_attention_heads": 4, "vocab_size": 600, "word_embed_proj_dim": 128}),
)  # fmt: skip
"""Right numbers."""
TIMED = tuple(
    Case(
        f"{shape}-{quantize}" if quantize != "none" else shape,
        {"model_type": "llama", **SHAPES[shape]},
        quantize,
        max_sequence=1024,
        chunks=(16, 64, 256),
        is_timed=True,
    )
    for shape, quantize in (("110M", "int4"), ("1.1B", "int4"), ("110M", "none"))
)
"""Speed."""
PROMPTS = (1, 7, 33, 70)
TOKENS = 16
MEASURED = ("llama-int8", "gemma2-int4", "mixtral-int4", "qwen3_next-int4", "110M-int4", "110M")
"""Whose kernels `resources` measures."""
