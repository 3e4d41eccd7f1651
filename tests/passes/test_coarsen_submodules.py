"""coarsen-submodules: which cuts remain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import UserError
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from passes.coarsen_submodules import absorb_glue, limit_groups, state_cuts
from tests.passes.models import decoder, graph
from tests.passes.random_graphs import compute, modules, request


def coarse(module: Module, options: str = "", rule: str = "eq1+frontier") -> list[str]:
    """First node of every sub-module that is left."""
    text = f"find-cuts{{rule={rule}}},form-submodules,coarsen-submodules{options},map-dependencies"
    run_passes(module, load_passes(text))
    assert module.submodules is not None
    return [submodule.nodes[0].name for submodule in module.submodules]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", ["h0", "l0.norm1", "l0.norm2", "l1.norm1", "l1.norm2", "logits"]),
        ("gpt2", ["h0", "l0.norm1", "l0.norm2", "l1.norm1", "l1.norm2", "logits"]),
        ("neox", ["h0", "l0.norm2", "l1.norm2", "logits"]),
        ("olmo2", ["h0", "l0.q", "l0.gate", "l1.q", "l1.gate", "logits"]),
    ],
)
def test_attention_and_mlp_stay_apart_and_glue_does_not(kind: str, expected: list[str]) -> None:
    assert coarse(decoder(kind)) == expected


def test_one_value_crosses_every_cut_of_a_decoder() -> None:
    module = decoder("llama", layers=3)
    coarse(module)
    assert module.rdm == {}
    assert [len(values) for values in (module.sdm or {}).values()] == [1] * 7


def test_none_keeps_the_raw_submodules() -> None:
    module = decoder("llama")
    assert len(coarse(module, "{none=true}")) == 8


def test_max_submodules() -> None:
    assert len(coarse(decoder("llama", 4), "{max_submodules=3}")) == 3
    assert len(coarse(decoder("llama", 4), "{max_submodules=1}")) == 1
    with pytest.raises(UserError, match="at least one"):
        coarse(decoder("llama"), "{max_submodules=0}")


def test_a_node_that_only_one_submodule_is_left_to_share_sinks_into_it() -> None:
    module = decoder("llama")
    coarse(module, "{max_submodules=1}")
    assert module.submodules is not None
    assert len(module.submodules[0].nodes) == len(module.graph.nodes)


def test_cuts_that_several_activations_cross_go_where_narrower_ones_exist() -> None:
    module = graph("""
        input %x: f32[8]
        weight %w = f32[8, 8] from "m"#"w"
        %a: f32[8] = MatMul(%x, %w)
        %b: f32[8] = MatMul(%a, %w)
        cut %c: f32[8] = MatMul(%b, %w)
        %d: f32[8] = MatMul(%c, %w)
        cut %e: f32[8] = MatMul(%d, %w)
        %f: f32[8] = Add(%e, %c)
        output %f
    """)
    run_passes(module, load_passes("form-submodules,coarsen-submodules"))
    assert [s.nodes[0].name for s in module.submodules or ()] == ["a", "c"]


CACHED = """
    input %x: f32[batch, 2, sequence, 4]
    input %position: i64[batch]
    state %cache: f32[batch, 2, 16, 4]
    submodule 0
    %a: f32[batch, 2, sequence, 4] = Relu(%x)
    %full: f32[batch, 2, 16, 4] = partc.UpdateState(%cache, %a, %position)
    submodule 1
    %b: f32[batch, 2, sequence, 4] = Neg(%a)
    submodule 2
    %c: f32[batch, 2, sequence, 4] = partc.Attention(%b, %full, %full, %position) {causal = 1, scale = 1.0}
    submodule 3
    %d: f32[batch, 2, sequence, 4] = Neg(%c)
    output %d
"""


def test_a_cache_crosses_no_cut() -> None:
    module = graph(CACHED, dims={"batch": 1, "sequence": 4})
    assert state_cuts(module.graph, module.submodules or ()) == {1, 2}
    run_passes(module, load_passes("coarsen-submodules,map-dependencies"))
    crossing = [value.name for values in (module.sdm or {}).values() for value in values]
    assert "full" not in crossing


def test_layers_that_share_a_cache_stay_together() -> None:
    text = print_module(decoder("llama", 3)).replace("%l2.q.rot, %l2.k.full,", "%l2.q.rot, %l1.k.full,")
    module = parse_module(text)
    assert coarse(module, rule="eq1") == ["h0", "l0.norm1", "l0.norm2", "l1.norm1", "l2.norm2"]


def test_glue_keeps_the_cheaper_of_its_two_cuts() -> None:
    # Groups weigh 1, 0, 1; the cut behind the glue is cheaper, so the one before it goes.
    assert absorb_glue([1, 2], [1.0, 0.0, 1.0], [0, 80, 8], [None] * 3) == [2]
    assert absorb_glue([1, 2], [1.0, 0.0, 1.0], [0, 8, 80], [None] * 3) == [1]
    assert absorb_glue([1, 2], [1.0, 0.0, 1.0], [0, 8, 8], [None] * 3) == [1]
    assert absorb_glue([1], [0.0, 0.0], [0, 8], [None] * 2) == []


def test_glue_stays_in_its_layer_where_both_cuts_cost_the_same() -> None:
    """A normalisation that ends a layer (BERT), one that begins one (Llama), and one in the middle."""
    weights, crossing = [1.0, 0.0, 1.0], [0, 8, 8]
    assert absorb_glue([1, 2], weights, crossing, [(0, 0), (0, 0), (1, 1)]) == [2]
    assert absorb_glue([1, 2], weights, crossing, [(0, 0), (1, 1), (1, 1)]) == [1]
    assert absorb_glue([1, 2], weights, crossing, [(0, 0), (0, 0), (0, 0)]) == [1]
    assert absorb_glue([1, 2], weights, [0, 8, 80], [(0, 0), (0, 0), (1, 1)]) == [1]


def test_limits_merge_the_lightest() -> None:
    assert limit_groups([1, 2, 3], [4.0, 1.0, 1.0, 3.0], 3) == [1, 3]
    assert limit_groups([1, 2, 3], [4.0, 1.0, 1.0, 3.0], 4) == [1, 2, 3]


@given(modules(), st.integers(1, 4))
def test_the_function_stays_the_same(text: str, most: int) -> None:
    module = parse_module(text)
    before = compute(module.graph, request(module))
    names = coarse(module, f"{{max_submodules={most}}}")
    assert len(names) <= most
    assert compute(module.graph, request(module)) == before
