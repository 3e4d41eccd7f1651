"""form-submodules: Eq. 2, and where free nodes go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partc.ir.flow import FREE_WEIGHT_BYTES, free_nodes
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.ir.verify import verify
from partc.ir.view import view
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from passes.form_submodules import layers
from tests.passes.models import decoder, graph
from tests.passes.random_graphs import compute, modules, request


def formed(module: Module, rule: str = "eq1+frontier") -> Module:
    run_passes(module, load_passes(f"find-cuts{{rule={rule}}},form-submodules"))
    return module


def content(module: Module) -> list[list[str]]:
    assert module.submodules is not None
    return [[node.name for node in submodule.nodes] for submodule in module.submodules]


def shared(module: Module) -> list[str]:
    inside = {name for names in content(module) for name in names}
    return [node.name for node in module.graph.nodes if node.name not in inside]


def test_a_decoder_becomes_embedding_and_two_submodules_per_layer() -> None:
    module = formed(decoder("llama"))
    assert [names[0] for names in content(module)] == [
        "h0", "l0.norm1", "l0.norm2", "l1.norm1", "l1.norm2", "norm", "before", "logits",
    ]  # fmt: skip


def test_rotary_tables_are_shared_and_the_last_row_is_computed_where_it_is_needed() -> None:
    module = formed(decoder("llama"))
    assert shared(module) == ["position_column", "ids", "float_ids", "angles", "cos", "sin"]
    assert content(module)[-2] == ["before", "column", "rows", "last"]


def test_one_layer_needs_no_shared_nodes() -> None:
    module = formed(decoder("llama", layers=1))
    assert shared(module) == []
    attention = content(module)[1]
    assert attention.index("cos") + 1 == attention.index("l0.q.rot") - 1  # %sin between them


def test_a_table_of_positions_is_too_heavy_to_be_free() -> None:
    rows = FREE_WEIGHT_BYTES // 32
    body = """
        input %ids: i64[batch, sequence]
        input %index: i64[sequence]
        weight %words = f32[100, 8] from "m"#"words"
        weight %places = f32[{rows}, 8] from "m"#"places"
        %p: f32[sequence, 8] = Gather(%places, %index)
        %h: f32[batch, sequence, 8] = Gather(%words, %ids)
        %x: f32[batch, sequence, 8] = Add(%h, %p)
        output %x
    """
    light, heavy = (graph(body.format(rows=count)).graph for count in (rows, rows + 1))
    assert [node.name for node in free_nodes(light)] == ["p"]
    assert free_nodes(heavy) == set()


def test_weights_alone_are_free_whatever_their_size_and_random_numbers_are_not() -> None:
    g = graph("""
        input %x: f32[9, 9]
        weight %w = f32[4096, 4096] from "m"#"w"
        %t: f32[4096, 4096] = Neg(%w)
        %r: f32[9, 9] = RandomNormal()
        %y: f32[9, 9] = partc.Odd(%x, %t, %r)
        output %y
    """).graph
    assert [node.name for node in free_nodes(g)] == ["t"]


def test_candidates_beside_each_other_are_one_layer() -> None:
    # Two branches, of two candidates and of one: Eq. 2 has two layers of candidates, not three.
    module = graph("""
        input %x: f32[8]
        weight %w = f32[8, 8] from "m"#"w"
        %stem: f32[8] = MatMul(%x, %w)
        %a0: f32[8] = MatMul(%stem, %w)
        %a1: f32[8] = Relu(%a0)
        %a2: f32[8] = Neg(%a1)
        %a3: f32[8] = Mul(%a1, %a2)
        %b0: f32[8] = MatMul(%stem, %w)
        %b1: f32[8] = Relu(%b0)
        %b2: f32[8] = Neg(%b1)
        %b3: f32[8] = Mul(%b1, %b2)
        %a4: f32[8] = Relu(%a3)
        %a5: f32[8] = Neg(%a4)
        %a6: f32[8] = Mul(%a4, %a5)
        %end: f32[8] = Add(%a6, %b3)
        output %end
    """)
    formed(module, "eq1")
    assert [node.name for node in module.candidates or ()] == ["a1", "b1", "a4"]
    first, second, third = content(module)
    assert {"stem", "a0", "b0"} == set(first)
    assert {"a1", "b1"} < set(second)
    assert "a4" in third


def test_the_second_branch_of_a_parallel_residual_stays_behind_the_cut() -> None:
    module = formed(decoder("neox"))
    assert {"l0.norm1", "l0.norm2"} < set(content(module)[1])


def test_without_candidates_there_is_one_submodule() -> None:
    module = decoder("llama")
    run_passes(module, load_passes("form-submodules"))
    assert len(content(module)) == 1
    assert shared(module) == []


def test_forming_again_changes_nothing() -> None:
    module = formed(decoder("neox"))
    before = print_module(module)
    runs = run_passes(module, load_passes("form-submodules"))
    assert not runs[0].modified
    assert print_module(module) == before


@given(modules(), st.data())
def test_any_choice_of_candidates_gives_legal_intervals_and_the_same_function(
    text: str, data: st.DataObject
) -> None:
    module = parse_module(text)
    before = compute(module.graph, request(module))
    module.candidates = data.draw(st.lists(st.sampled_from(module.graph.nodes), unique=True))
    run_passes(module, load_passes("form-submodules"))
    verify(module, "formed")
    assert compute(module.graph, request(module)) == before


@given(modules())
def test_eq2_on_eq1_candidates(text: str) -> None:
    """Behind a candidate of layer j and behind none of layer j + 1; barriers only push further."""
    module = parse_module(text)
    run_passes(module, load_passes("find-cuts{rule=eq1}"))
    candidates = set(module.candidates or ())
    level = layers(module.graph, candidates)
    whole = view(module.graph)
    for node in level:
        for maker in whole.predecessors(node):
            if maker in level:
                assert level[node] >= level[maker] + (node in candidates)
