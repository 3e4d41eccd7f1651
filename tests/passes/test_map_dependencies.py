"""map-dependencies: Eq. 3 and 4, against brute force straight from the equations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partc.ir.graph import DependencyMap, Input, Module
from partc.ir.text import parse_module, print_module
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from passes.map_dependencies import dependency_maps
from tests.passes.models import graph
from tests.passes.random_graphs import edges, modules


def names(entries: DependencyMap) -> dict[tuple[int, int], list[str]]:
    return {pair: [value.name for value in values] for pair, values in entries.items()}


SKIP = """
    input %x: f32[batch, 8]
    input %kind: f32[batch, 8]
    input %position: f32[batch, 8]
    weight %w = f32[8, 8] from "m"#"w"
    %tables: f32[batch, 8] = Cos(%position)
    submodule 0
    %a: f32[batch, 8] = MatMul(%x, %w)
    %b: f32[batch, 8] = Add(%a, %tables)
    submodule 1
    %c: f32[batch, 8] = Relu(%b)
    %d: f32[batch, 8] = Mul(%b, %c)
    submodule 2
    %e: f32[batch, 8] = MatMul(%d, %w)
    %f: f32[batch, 8] = Add(%e, %a)
    submodule 3
    %g: f32[batch, 8] = Add(%f, %a)
    %h: f32[batch, 8] = Add(%g, %kind)
    %i: f32[batch, 8] = Add(%h, %tables)
    output %i
"""


def test_what_crosses_and_what_does_not() -> None:
    module = graph(SKIP)
    assert module.submodules is not None
    sdm, rdm = dependency_maps(module.graph, module.submodules)
    assert names(sdm) == {(0, 1): ["b"], (1, 2): ["d"], (2, 3): ["f"]}
    # %a once per consumer; the graph input %kind comes from sub-module 0; %tables and %w are everywhere.
    assert names(rdm) == {(0, 2): ["a"], (0, 3): ["kind", "a"]}


def test_a_graph_input_read_next_door_is_sequential() -> None:
    module = graph("""
        input %x: f32[8]
        submodule 0
        %a: f32[8] = Relu(%x)
        submodule 1
        %b: f32[8] = Add(%a, %x)
        output %b
    """)
    assert module.submodules is not None
    sdm, rdm = dependency_maps(module.graph, module.submodules)
    assert names(sdm) == {(0, 1): ["x", "a"]}
    assert rdm == {}


def equations(module: Module) -> tuple[set[tuple[int, int, str]], set[tuple[int, int, str]]]:
    """Eq. 3 and 4 as they stand: over all edges and all pairs of sub-modules."""
    subgraphs = [set(submodule.nodes) for submodule in module.submodules or ()]
    triples = [
        (i, j, value.name)
        for u, value, v in edges(module.graph)
        for i, s_i in enumerate(subgraphs)
        for j, s_j in enumerate(subgraphs)
        if v in s_j and (i == 0 and not u.is_step if isinstance(u, Input) else u in s_i)
    ]
    sdm = {(i, j, name) for i, j, name in triples if i == j - 1}
    rdm = {(i, k, name) for i, k, name in triples if i < k and i != k - 1}
    return sdm, rdm


def flat(entries: DependencyMap) -> list[tuple[int, int, str]]:
    return [(i, j, value.name) for (i, j), values in entries.items() for value in values]


@given(modules(), st.data())
def test_maps_are_the_equations(text: str, data: st.DataObject) -> None:
    module = parse_module(text)
    module.candidates = data.draw(st.lists(st.sampled_from(module.graph.nodes), unique=True))
    run_passes(module, load_passes("form-submodules,map-dependencies"))
    assert module.sdm is not None
    assert module.rdm is not None
    sdm, rdm = equations(module)
    assert set(flat(module.sdm)) == sdm
    assert set(flat(module.rdm)) == rdm
    assert len(flat(module.sdm)) == len(sdm)
    assert len(flat(module.rdm)) == len(rdm)
    assert print_module(parse_module(print_module(module))) == print_module(module)
