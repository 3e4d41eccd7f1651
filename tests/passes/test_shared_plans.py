"""Plans of models whose blocks several devices share: from the graph to the problem, and to a plan that holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.cli.main import run
from partc.errors import PlanError
from partc.format.program import ONCE, Keep, Run
from partc.format.role import load_role
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.ir.verify import verify
from partc.pipeline.default import default_pipeline
from partc.pipeline.manager import run_passes
from partc.pipeline.sharing import SHARES_ALL
from partc.planner.groups.evaluate import evaluate_plan
from partc.planner.model.problem import Problem, Tiling
from partc.planner.model.problem_json import problem_json, read_problem
from passes.shards.blocks import find_blocks
from passes.split_graph import split
from tests.passes.models import HEAD, HEADS, HIDDEN, INNER, KV_HEADS, decoder, graph
from tests.passes.test_shard_blocks import MLP

KINDS = ("llama", "gpt2", "neox", "olmo2")
DEVICES = """
source: a
devices:
  a: {{target: "null", flops: 1 GFLOP/s, memory_bandwidth: {bandwidth}, memory: 1 GiB}}
  b: {{target: "null", flops: 3 GFLOP/s, memory_bandwidth: {bandwidth}, memory: 1 GiB}}
links: {{default: {{bandwidth: 1 Gbit/s, latency: 0.1 ms}}}}
"""


def planned(
    module: Module, strategy: str, folder: Path, bandwidth: str = "1000 GB/s", extra: str = ""
) -> Module:
    """The module with a plan; devices are bound by arithmetic unless another bandwidth is given."""
    devices = folder / "devices.yaml"
    devices.write_text(DEVICES.format(bandwidth=bandwidth) + extra)
    run_passes(
        module,
        default_pipeline(devices, strategy, "eq1+frontier", folder / "build", ("cut", "measure", "place")),
    )
    return module


def problem_of(module: Module) -> Problem:
    assert module.plan is not None and module.plan.problem is not None
    return read_problem(module.plan.problem)


@pytest.mark.parametrize("kind", KINDS)
def test_every_block_has_a_sub_module_of_its_own(kind: str, tmp_path: Path) -> None:
    module = planned(decoder(kind, prompt=32, generate=8), "galaxy", tmp_path)
    for block in find_blocks(module.graph)[0]:
        (home,) = [s for s in module.submodules or () if block.end in s.nodes]
        assert {*block.inside} <= {*home.nodes}
    problem = problem_of(module)
    kinds = [part.block.share for part in problem.submodules if part.block]
    assert sorted(kinds) == ["columns", "columns", "heads", "heads"]
    assert problem_json(read_problem(problem_json(problem))) == problem_json(problem)


@pytest.mark.parametrize("strategy", SHARES_ALL)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_planned(kind: str, strategy: str, tmp_path: Path) -> None:
    module = planned(decoder(kind, prompt=32, generate=8), strategy, tmp_path)
    assert module.plan is not None
    plan, problem = module.plan.answer, problem_of(module)
    assert plan.value == pytest.approx(evaluate_plan(problem, plan).value)
    assert set(plan.phases) == {"prefill", "decode"}
    shared = [stage for stage in plan.phases["prefill"] if len(stage.devices) == 2]
    assert [j for stage in shared for j in stage.indices] == [
        j for j, part in enumerate(problem.submodules) if part.block
    ]
    assert print_module(parse_module(print_module(module))) == print_module(module)
    module.parts = split(module)
    assert [part.device for part in module.parts] == ["a", "b"]
    verify(module, "split")


def test_memory_and_times_of_the_parts_of_a_block(tmp_path: Path) -> None:
    prompt = 32
    problem = problem_of(planned(decoder("llama", prompt=prompt, generate=8), "galaxy", tmp_path))
    heads, columns = problem.submodules[1].block, problem.submodules[2].block
    assert heads is not None and columns is not None
    assert (heads.units, columns.units) == (KV_HEADS, INNER)
    products = HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD + HEADS * HEAD * HIDDEN
    assert heads.memory_bytes == 4 * products + 2 * 4 * KV_HEADS * 512 * HEAD
    assert columns.memory_bytes == 4 * 3 * HIDDEN * INNER
    # a computes 1 operation in 1 ns, and moves bytes in no time.
    tiling, seconds = problem.steps[0].tilings[1], problem.steps[0].time_s[1]["a"]
    assert tiling is not None
    assert (tiling.rows, tiling.activation_bytes) == (prompt, 4 * prompt * HIDDEN)
    assert tiling.keys_bytes == 2 * 4 * prompt * KV_HEADS * HEAD
    enter, leave = 2 * prompt * HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD, 2 * prompt * (HEADS * HEAD) * HIDDEN
    assert tiling.enter * seconds == pytest.approx(enter * 1e-9, rel=1e-3)
    assert tiling.leave * seconds == pytest.approx(leave * 1e-9, rel=1e-3)
    # A norm (8 operations for a number) and a sum are what connects.
    assert tiling.connect * seconds == pytest.approx((8 + 1) * prompt * HIDDEN * 1e-9, rel=1e-3)


def test_a_model_without_blocks_says_so(tmp_path: Path) -> None:
    lines = MLP.replace("Gelu", "Softmax")
    with pytest.raises(PlanError, match="no block can be shared"):
        planned(graph(lines, dims={"batch": 1, "sequence": 4}), "galaxy", tmp_path)


def test_sums_of_16_bits_travel_in_32(tmp_path: Path) -> None:
    def tiling_of(dtype: str) -> Tiling:
        module = parse_module(print_module(decoder("llama", prompt=32, generate=8)).replace("f32", dtype))
        found = problem_of(planned(module, "galaxy", tmp_path)).steps[0].tilings[1]
        assert found is not None
        return found

    wide, half = tiling_of("f32"), tiling_of("f16")
    assert (wide.activation_bytes, wide.summed_bytes) == (2 * half.activation_bytes, half.summed_bytes)
    assert half.summed_bytes == 2 * half.activation_bytes


def test_groups_exclude_what_is_for_stages_of_one_device(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is for stages of one"):
        planned(decoder(), "galaxy", tmp_path, extra="overlap: 1")


READERS = {
    "t5": "vocab_size: 90, d_model: 32, d_kv: 8, d_ff: 48, num_heads: 4, num_layers: 2",
    "bart": "vocab_size: 90, d_model: 32, encoder_layers: 2, decoder_layers: 2, encoder_attention_heads: 4, "
    "decoder_attention_heads: 4, encoder_ffn_dim: 48, decoder_ffn_dim: 48, max_position_embeddings: 32, "
    "pad_token_id: 1, bos_token_id: 0, eos_token_id: 2, forced_eos_token_id: null",
}
"""Without biases, and with them behind each product."""


@pytest.mark.in_turns(2)
@pytest.mark.hf
@pytest.mark.parametrize("family", READERS)
def test_what_follows_from_a_source_is_shared_in_the_first_step_alone(family: str, workdir: Path) -> None:
    """The encoder, its sums, and the keys and values of cross-attention: later steps send and compute none of it."""
    config = f"model_type: {family}, {READERS[family]}, decoder_start_token_id: 0"
    Path("model.yaml").write_text(
        f"model: {{config: {{{config}}}, seed: 4}}\ntask: text2text-generation\n"
        "max_sequence: 24\nmax_source: 24\n"
    )
    Path("devices.yaml").write_text(DEVICES.format(bandwidth="10 GB/s"))
    assert run(["compile", "model.yaml", "--target", "devices.yaml", "--strategy", "megatron"]) == 0
    placement = load_role(Path("build/devices/b")).placement
    first, later = (placement.parsed[phase]["b"] for phase in ("prefill", "decode"))
    runs = [[item.submodule for item in program if isinstance(item, Run)] for program in (first, later)]
    once = [name for name in runs[0] if name.endswith(ONCE)]
    assert once and runs[1] == [name for name in runs[0] if name not in once]
    sent = [
        [name for item in program for one in item.sends for name in one.values] for program in (first, later)
    ]
    encoder = ("encoder", "model.encoder")
    assert any(name.startswith(encoder) for name in sent[0])
    assert not any(name.startswith(encoder) for name in sent[1])
    (kept,) = (item.values for item in first if isinstance(item, Keep))
    assert sum("EncDecAttention" in name or "encoder_attn" in name for name in kept) == 2 * 2
