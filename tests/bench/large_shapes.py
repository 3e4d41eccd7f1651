"""The largest models, from their configurations alone: what importing and planning takes.

    python -m tests.bench.large_shapes [SHAPE …] [--target ort | tvm] [--quantize int4] [--json FILE]

Each shape is imported (`partc lower`) and planned for eight devices (`partc plan`), each in a process of its own that
keeps nothing and finds nothing kept. Prints seconds and peak memory, and the parameters beside those that the model is
published with: a wrong configuration would show there. Exit code 1 where an import takes more than the aims allow.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.large_model import measure

AIM_S, AIM_BYTES = 180.0, 2.5e9
"""An import's most seconds and bytes."""
DEVICES = 8


@dataclass(frozen=True)
class Shape:
    """A published model."""

    source: str
    """The repository of the Hugging Face hub whose config.json has the numbers."""
    parameters: int
    """Parameters as published, without those that only serve to train or to see."""
    config: dict[str, Any]


SHAPES = {
    "qwen3-next": Shape(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        79_674_391_296,
        {
            "model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5120,
            "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
            "max_position_embeddings": 262144, "rope_theta": 10000000, "partial_rotary_factor": 0.25,
            "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
            "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1, "norm_topk_prob": True,
            "tie_word_embeddings": False, "bos_token_id": 151643, "eos_token_id": 151645,
        },
    ),
    "llama4-scout": Shape(
        "meta-llama/Llama-4-Scout-17B-16E-Instruct, text_config",
        107_769_861_120,
        {
            "model_type": "llama4_text", "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192,
            "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 10485760,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
            },
            "attention_chunk_size": 8192, "use_qk_norm": True, "num_local_experts": 16, "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1, "tie_word_embeddings": False, "bos_token_id": 200000,
            "eos_token_id": [200001, 200007, 200008], "pad_token_id": 200018,
        },
    ),
    "deepseek-v3": Shape(
        "deepseek-ai/DeepSeek-V3",
        671_026_419_200,
        {
            "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
            "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
            "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
            "first_k_dense_replace": 3, "norm_topk_prob": True, "max_position_embeddings": 163840,
            "rope_theta": 10000,
            "rope_scaling": {
                "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
            },
            "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1,
        },
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The measurements of one command."""

    shape: str
    what: str
    wall_s: float
    cpu_s: float
    peak_bytes: int
    load: float
    """Of the machine, in the minute behind it: beside others, wall time says little."""

    @property
    def misses(self) -> bool:
        """Whether an import takes more than the aims allow; beside others on the machine its processor time counts."""
        is_import = self.what == "import"
        return is_import and (min(self.wall_s, self.cpu_s) > AIM_S or self.peak_bytes > AIM_BYTES)

    @property
    def line(self) -> str:
        """A line of the table."""
        mark = f", more than {AIM_S:.0f} s or {AIM_BYTES / 1e9} GB" if self.misses else ""
        times = f"{self.wall_s:7.1f} s wall {self.cpu_s:7.1f} s CPU"
        memory = f"peak {self.peak_bytes / 1e6:6.0f} MB"
        return f"{self.shape:13} {self.what:7} {times}  {memory}  load {self.load:.1f}{mark}"


def write_inputs(folder: Path, shape: Shape, target: str, quantize: str) -> None:
    """model.yaml, and devices.yaml with devices that hold it together."""
    model = {
        "model": {"config": shape.config, "seed": 0},
        "quantize": quantize,
        "max_sequence": 4096,
        "max_requests": 1,
    }
    (folder / "model.yaml").write_text(json.dumps(model))
    gib = math.ceil(shape.parameters / DEVICES / (1 << 30)) + 8  # a byte a parameter, where int4 takes 0.56
    device = f"{{target: {target}, flops: 1 TFLOP/s, memory_bandwidth: 200 GB/s, memory: {gib} GiB}}"
    lines = [f"  {name}: {device}" for name in "abcdefgh"[:DEVICES]]
    links = "links: {default: {bandwidth: 10 Gbit/s, latency: 200 us}}"
    text = "\n".join(["source: a", "memory_fraction: 1.0", "devices:", *lines, links])
    (folder / "devices.yaml").write_text(text + "\n")


def parameters_in(ir: str) -> int:
    """The parameters of printed IR: every weight once."""
    weights = set(re.findall(r"^\s*weight \S+ = \w+\[([\d, ]*)\] from (.*)$", ir, re.MULTILINE))
    return sum(math.prod(int(size) for size in sizes.split(",") if size.strip()) for sizes, _ in weights)


def measure_shape(name: str, folder: Path) -> list[Found]:
    """The import of a shape, and the plan with the import kept."""
    command = [sys.executable, "-m", "partc.cli"]
    found = []
    for what, arguments in {
        "import": ["lower", "model.yaml"],
        "plan": ["plan", "model.yaml", "--target", "devices.yaml"],
    }.items():
        it = measure(what, [*command, *arguments], folder)
        found.append(Found(name, what, it.wall_s, it.cpu_s, it.peak_bytes, os.getloadavg()[0]))
        print(found[-1].line, flush=True)
        text = (folder / "log.txt").read_text()
        if what == "import":
            print(
                f"{name:13} {parameters_in(text):,} parameters; published {SHAPES[name].parameters:,}",
                flush=True,
            )
        else:
            print(text, flush=True)
    return found


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.large_shapes", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)}; all if none is named"
    )
    parser.add_argument(
        "--target", choices=("ort", "tvm"), default="ort", help="of all devices (default ort)"
    )
    parser.add_argument("--quantize", default="int4", help="the precision of weights (default int4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])  # the commands run elsewhere
    found: list[Found] = []
    for name in options.shapes or SHAPES:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
            write_inputs(folder, SHAPES[name], options.target, options.quantize)
            found += measure_shape(name, folder)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    return int(any(each.misses for each in found))


if __name__ == "__main__":
    sys.exit(main())
