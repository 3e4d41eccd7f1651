"""Costs of single nodes, by hand."""

from __future__ import annotations

import pytest

from partc.ir.costs import node_cost, scratch_bytes
from partc.ir.graph import ModelInfo
from partc.ir.workload import Step, largest, workload
from tests.passes.models import graph

PREFILL = Step("prefill", {"batch": 1, "sequence": 32}, 32)
DECODE = Step("decode", {"batch": 1, "sequence": 1}, 80)

ATTENTION = """
    input %q: f32[batch, 4, sequence, 16]
    input %k: f32[batch, 2, sequence, 16]
    input %position: i64[batch]
    state %key: f32[batch, 2, 512, 16]
    %full: f32[batch, 2, 512, 16] = partc.UpdateState(%key, %k, %position)
    %out: f32[batch, 4, sequence, 16] = partc.Attention(%q, %full, %full, %position) {{causal = 1, {more}}}
    output %out
"""


def cost(body: str, step: Step = PREFILL) -> tuple[int, int]:
    """(flops, bytes moved) of the last node."""
    found = node_cost(graph(body).graph.nodes[-1], step)
    return found.flops, found.moved_bytes


@pytest.mark.parametrize(
    ("call", "kind", "flops", "moved"),
    [
        ("MatMul(%x, %w)", "f32[batch, sequence, 24]", 2 * 32 * 8 * 24, 4 * (32 * 8 + 8 * 24 + 32 * 24)),
        ("Gemm(%m, %v) {transB = 1}", "f32[6, 24]", 2 * 6 * 8 * 24, 4 * (6 * 8 + 24 * 8 + 6 * 24)),
        ("Gemm(%t, %v) {transA = 1, transB = 1}", "f32[6, 24]", 2 * 6 * 8 * 24, 4 * 384),
        ("Einsum(%x, %w) {equation = \"bsd,de->bse\"}", "f32[batch, sequence, 24]", 12288, 4 * 1216),
        ("Einsum(%x, %w) {equation = \"...d,de->...e\"}", "f32[batch, sequence, 24]", 12288, 4 * 1216),
        ("Conv(%image, %kernel)", "f32[1, 5, 6, 6]", 2 * 5 * 36 * 3 * 9, 4 * (3 * 64 + 5 * 27 + 5 * 36)),
        ("Add(%x, %x)", "f32[batch, sequence, 8]", 32 * 8, 4 * 2 * 32 * 8),
        ("Gelu(%x)", "f32[batch, sequence, 8]", 8 * 32 * 8, 4 * 2 * 32 * 8),
        ("ReduceMean(%x)", "f32[batch, sequence, 1]", 32 * 8, 4 * (32 * 8 + 32)),
        ("Transpose(%w) {perm = [1, 0]}", "f32[24, 8]", 0, 4 * 2 * 192),
        ("Reshape(%x, %to)", "f32[batch, sequence, 2, 4]", 0, 0),
        ("Gather(%table, %ids)", "f32[batch, sequence, 8]", 0, 2 * 4 * 32 * 8 + 8 * 32),
    ],
)  # fmt: skip
def test_operators(call: str, kind: str, flops: int, moved: int) -> None:
    body = f"""
        input %x: f32[batch, sequence, 8]
        input %ids: i64[batch, sequence]
        input %m: f32[6, 8]
        input %t: f32[8, 6]
        input %image: f32[1, 3, 8, 8]
        weight %w = f32[8, 24] from "m"#"w"
        weight %v = f32[24, 8] from "m"#"v"
        weight %kernel = f32[5, 3, 3, 3] from "m"#"kernel"
        weight %table = f32[100000, 8] from "m"#"table"
        const %to = i64[4] [0, 0, 2, 4]
        %y: {kind} = {call}
        output %y
    """
    assert cost(body) == (flops, moved)


def test_attention_counts_what_is_valid_in_the_cache() -> None:
    flops, moved = cost(ATTENTION.format(more="window = 0"), DECODE)
    assert flops == 2 * 2 * 4 * 16 * 80 + 8 * 4 * 80
    assert moved == 4 * (2 * 4 * 16 + 2 * 2 * 80 * 16)
    assert cost(ATTENTION.format(more="window = 0"))[0] == 2 * 2 * 4 * 32 * 16 * 32 + 8 * 4 * 32 * 32


@pytest.mark.parametrize("limit", ["window", "chunk"])
def test_attention_in_a_window_or_a_chunk(limit: str) -> None:
    flops, moved = cost(ATTENTION.format(more=f"{limit} = 20"), DECODE)
    assert flops == 2 * 2 * 4 * 16 * 20 + 8 * 4 * 20
    assert moved == 4 * (2 * 4 * 16 + 2 * 2 * 20 * 16)


def test_attention_without_a_cache() -> None:
    body = """
        input %q: f32[batch, 4, sequence, 16]
        input %mask: bool[batch, 1, sequence, sequence]
        %out: f32[batch, 4, sequence, 16] = partc.Attention(%q, %q, %q, _, %mask) {causal = 0}
        output %out
    """
    flops, moved = cost(body)
    assert flops == 2 * 2 * 4 * 32 * 16 * 32 + 8 * 4 * 32 * 32
    assert moved == 4 * 4 * (4 * 32 * 16) + 32 * 32
    node = graph(body).graph.nodes[-1]
    assert scratch_bytes(node, PREFILL) == 3 * 3 * 4 * (4 * 32 * 16), "copies of queries, keys and values"
    long = Step("prefill", {"batch": 1, "sequence": 512}, 512)
    assert scratch_bytes(node, long) == 4 * 4 * 512 * 512, "scores"


def test_an_update_moves_new_rows_only() -> None:
    update = graph(ATTENTION.format(more="window = 0")).graph.nodes[0]
    assert node_cost(update, DECODE).moved_bytes == 2 * 4 * 2 * 16
    assert node_cost(update, DECODE).flops == 0


def test_the_workload_is_one_sequence() -> None:
    info = ModelInfo("m", "text-generation", dims={"batch": 4, "sequence": 512, "classes": 3}, max_batch=4)
    prefill, decode = workload(info)
    assert prefill == Step("prefill", {"batch": 1, "sequence": 32, "classes": 3}, 32)
    assert decode == Step("decode", {"batch": 1, "sequence": 1, "classes": 3}, 80)
    assert largest(info, "prefill").sizes == {"batch": 4, "sequence": 512, "classes": 3}
    assert largest(info, "decode").sizes == {"batch": 4, "sequence": 1, "classes": 3}


def test_a_prompt_is_no_longer_than_the_model_allows() -> None:
    info = ModelInfo("m", "text-generation", max_sequence=16, dims={"batch": 1, "sequence": 16})
    assert [step.context for step in workload(info)] == [16, 16]


def test_a_task_without_states_has_one_phase() -> None:
    assert [step.name for step in workload(ModelInfo("m", "graph", dims={"n": 7}))] == ["prefill"]
