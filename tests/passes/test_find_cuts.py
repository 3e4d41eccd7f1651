"""find-cuts: the paper's rule exactly, and the places where one activation crosses."""

from __future__ import annotations

import pytest
from hypothesis import given

from partc.errors import UserError
from partc.ir.flow import free_nodes, light_nodes, schedule, widths
from partc.ir.graph import Input, Module
from partc.ir.text import parse_module, print_module
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass, load_passes
from passes.find_cuts import FindCuts, eq1_candidates, find_cuts
from tests.passes.models import decoder, decoder_text, graph
from tests.passes.random_graphs import edges, modules

DIAMOND = """
    input %x: f32[batch, 8]
    %a: f32[batch, 8] = Relu(%x)
    %b: f32[batch, 8] = Relu(%a)
    %c: f32[batch, 8] = Mul(%b, %b)
    %d: f32[batch, 8] = Neg(%b)
    %e: f32[batch, 8] = Add(%c, %d)
    output %e
"""


def names(module: Module, rule: str) -> list[str]:
    return [node.name for node in find_cuts(module.graph, rule)]


def test_eq1_counts_distinct_neighbours_and_no_graph_inputs() -> None:
    # %a: in-degree 0 (a graph input is no node); %c reads %b twice, which is one edge.
    assert names(graph(DIAMOND), "eq1") == ["b"]


@given(modules())
def test_eq1_is_the_equation(text: str) -> None:
    g = parse_module(text).graph
    pairs = {(u, v) for u, _, v in edges(g) if not isinstance(u, Input)}
    expected = [
        n for n in g.nodes if sum(u is n for u, _ in pairs) > 1 and sum(v is n for _, v in pairs) == 1
    ]
    assert eq1_candidates(g) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", ["l0.norm1", "l0.norm2", "l1.norm1", "l1.norm2", "norm", "last", "logits"]),
        ("gpt2", ["l0.norm1", "l0.norm2", "l1.norm1", "l1.norm2", "norm", "last", "logits"]),
        ("neox", ["l0.norm2", "l1.norm2", "norm", "last", "logits"]),
        ("olmo2", ["l0.q", "l0.gate", "l1.q", "l1.gate", "norm", "last", "logits"]),
    ],
)
def test_default_rule_finds_every_layer(kind: str, expected: list[str]) -> None:
    assert names(decoder(kind), "eq1+frontier") == expected


def test_eq1_on_separate_projections_finds_the_norms() -> None:
    norms = [name for name in names(decoder("llama"), "eq1") if "norm" in name]
    assert norms == ["l0.norm1", "l0.norm2", "l1.norm1", "l1.norm2"]


def test_eq1_finds_no_layer_of_a_post_norm_model() -> None:
    assert names(decoder("olmo2"), "eq1") == ["angles", "cos", "sin"]


def test_candidates_that_several_activations_cross_are_dropped() -> None:
    # In the parallel residual, Eq. 1 cuts behind the fused product, where the other branch crosses too.
    assert "l0.q" in names(decoder("neox"), "eq1")
    assert "l0.q" not in names(decoder("neox"), "eq1+frontier")


def test_an_early_scheduled_node_hides_no_cut() -> None:
    module = graph("""
        input %x: f32[batch, 8]
        weight %w = f32[8, 8] from "m.safetensors"#"w"
        weight %u = f32[100, 8] from "m.safetensors"#"u"
        input %ids: i64[batch]
        %late: f32[batch, 8] = Gather(%u, %ids)
        %a: f32[batch, 8] = MatMul(%x, %w)
        %b: f32[batch, 8] = Relu(%a)
        %c: f32[batch, 8] = Tanh(%b)
        %d: f32[batch, 8] = Add(%c, %late)
        output %d
    """)
    assert names(module, "eq1+frontier") == ["b", "c", "late"]


def test_a_mask_made_of_an_input_does_not_hide_cuts() -> None:
    module = graph("""
        input %x: f32[batch, 8]
        input %mask: f32[batch, 1]
        weight %w = f32[8, 8] from "m.safetensors"#"w"
        const %to = i64[2] [1, 8]
        %wide: f32[batch, 8] = Expand(%mask, %to)
        %a: f32[batch, 8] = MatMul(%x, %w)
        %b: f32[batch, 8] = Mul(%a, %wide)
        %c: f32[batch, 8] = MatMul(%b, %w)
        %d: f32[batch, 8] = Mul(%c, %wide)
        output %d
    """)
    assert names(module, "eq1+frontier") == ["b", "c", "d"]


def test_what_every_layer_reads_does_not_hide_cuts() -> None:
    # As in Gemma 3n: a table of inputs for every layer is made once, and each layer reads its own part.
    lines = decoder_text("llama", 4).splitlines()
    at = next(i for i, line in enumerate(lines) if "%h0:" in line)
    hidden = "f32[batch, sequence, 64]"
    lines.insert(at + 1, f"%all: {hidden} = MatMul(%h0, %l0.o.w)")
    for layer in range(4):
        add = next(i for i, line in enumerate(lines) if f"%l{layer}.out:" in line)
        lines[add] = lines[add].replace(f"%l{layer}.mid", f"%l{layer}.more")
        lines.insert(add, f"%l{layer}.more: {hidden} = Add(%l{layer}.mid, %all)")
    module = parse_module("\n".join(lines))
    assert {f"l{layer}.norm1" for layer in range(1, 4)} < set(names(module, "eq1+frontier"))
    run_passes(module, load_passes("find-cuts,form-submodules,coarsen-submodules,map-dependencies"))
    assert len(module.submodules or ()) > 4
    assert all(value.name == "all" for values in (module.rdm or {}).values() for value in values)


def test_shared_caches_are_activations() -> None:
    text = print_module(decoder("llama", 3))
    module = parse_module(
        text.replace("partc.Attention(%l2.q.rot, %l2.k.full,", "partc.Attention(%l2.q.rot, %l0.k.full,")
    )
    found = names(module, "eq1+frontier")
    assert "l0.norm1" in found
    assert not {"l0.norm2", "l1.norm1", "l1.norm2", "l2.norm1"} & set(found)


@given(modules())
def test_schedule_is_a_topological_order_and_widths_count_crossings(text: str) -> None:
    g = parse_module(text).graph
    free = free_nodes(g)
    order = schedule(g, free)
    assert sorted(map(id, order)) == sorted(id(node) for node in g.nodes if node not in free)
    place = {node: i for i, node in enumerate(order)}
    inner = [
        (u, value, v) for u, value, v in edges(g) if u in place and v in place and not isinstance(u, Input)
    ]
    assert all(place[u] < place[v] for u, _, v in inner if not isinstance(u, Input))
    light = light_nodes(g, free)
    for i, width in enumerate(widths(g, order, light)):
        crossing = {value for u, value, v in inner if not isinstance(u, Input) and place[u] < i <= place[v]}
        assert width == len({value for value in crossing if value.producer not in light})


def test_the_pass_marks_and_leaves_the_graph() -> None:
    module = decoder("llama")
    before = list(module.graph.nodes)
    step = load_pass("find-cuts{rule=eq1}")
    assert [run.modified for run in run_passes(module, [step, step])] == [True, False]
    assert module.graph.nodes == before
    assert "cut %l0.norm1" in print_module(module)


def test_unknown_rule_names_the_rules() -> None:
    with pytest.raises(UserError, match=r"unknown cut rule 'eq2'") as caught:
        run_passes(decoder("llama"), [FindCuts(rule="eq2")])
    assert caught.value.hint == "rules: eq1, eq1+frontier, all"
