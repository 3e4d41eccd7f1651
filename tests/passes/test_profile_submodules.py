"""profile-submodules: memory, work and traffic of sub-modules."""

from __future__ import annotations

from typing import Any

import pytest

from partc.errors import ModelError
from partc.ir.graph import Module, SubmoduleProfile
from partc.ir.text import parse_module, print_module
from partc.ir.workload import Step
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from passes.profile_submodules import peak_bytes
from tests.passes.models import HEAD, HIDDEN, INNER, KV_HEADS, VOCAB, decoder, graph


def profiled(module: Module, before: str = "") -> list[SubmoduleProfile]:
    run_passes(module, load_passes(f"{before}map-dependencies,profile-submodules"))
    assert module.profile is not None
    return module.profile


def llama(**info: Any) -> list[SubmoduleProfile]:
    return profiled(decoder("llama", **info), "find-cuts,form-submodules,coarsen-submodules,")


def test_weights_of_attention_and_mlp() -> None:
    _, attention, mlp, *_ = llama()
    projections = HIDDEN * HIDDEN * 2 + HIDDEN * KV_HEADS * HEAD * 2
    # Frequencies (8 f32) and the axis (1 i64) of the shared rotary tables, the target shapes of the reshapes.
    constants = 8 * 4 + 8 + (4 + 4 + 3) * 8
    assert attention.weight_bytes == 4 * (projections + HIDDEN) + constants
    assert mlp.weight_bytes == 4 * (3 * HIDDEN * INNER + HIDDEN)


def test_caches_are_held_for_every_request_and_sequence() -> None:
    one = 2 * 4 * KV_HEADS * 512 * HEAD
    assert llama()[1].state_bytes == one
    assert llama(max_requests=3, max_batch=2, dims={"batch": 2, "sequence": 512})[1].state_bytes == 6 * one
    assert [p.state_bytes for p in llama()] == [0, one, 0, one, 0, 0]


def test_tied_embeddings_are_shared_and_no_weight_of_their_own() -> None:
    embedding, *_, head = llama()
    assert embedding.shared == head.shared == {"embed": 4 * VOCAB * HIDDEN}
    assert (embedding.weight_bytes, head.weight_bytes) == (0, 0)


def test_different_slices_of_one_tensor_are_not_shared() -> None:
    module = graph("""
        input %x: f32[8]
        weight %a = f32[8, 8] from "m"#"all" |> slice(0,0,8)
        weight %b = f32[8, 8] from "m"#"all" |> slice(0,8,16)
        submodule 0
        %y: f32[8] = MatMul(%x, %a)
        submodule 1
        %z: f32[8] = MatMul(%y, %b)
        output %z
    """)
    assert [(p.weight_bytes, dict(p.shared)) for p in profiled(module)] == [(256, {}), (256, {})]


def test_a_weight_that_two_nodes_read_counts_once() -> None:
    module = graph("""
        input %x: f32[8]
        weight %a = f32[8, 8] from "m"#"a"
        weight %b = f32[8, 8] from "m"#"a" |> transpose(1,0)
        %y: f32[8] = MatMul(%x, %a)
        %z: f32[8] = MatMul(%y, %b)
        output %z
    """)
    assert profiled(module, "form-submodules,")[0].weight_bytes == 256


def test_work_of_the_two_phases() -> None:
    mlp = llama()[2]
    products = 2 * 3 * HIDDEN * INNER
    rest = 8 * HIDDEN + HIDDEN + 9 * INNER
    assert mlp.phases["prefill"].flops == 32 * (products + rest)
    assert mlp.phases["decode"].flops == products + rest
    weights = 4 * (3 * HIDDEN * INNER + HIDDEN)
    assert weights < mlp.phases["decode"].read_bytes < 1.1 * weights


def test_embedding_reads_rows_not_the_table() -> None:
    assert llama()[0].phases["decode"].read_bytes < 4 * HIDDEN * 3


def test_bytes_at_the_boundaries() -> None:
    crossing = [(p.phases["prefill"].crossing_bytes, p.phases["decode"].crossing_bytes) for p in llama()]
    hidden = 4 * HIDDEN
    assert crossing == [(0, 0), *[(32 * hidden, hidden)] * 4, (hidden, hidden)]


def test_a_value_that_skips_crosses_every_cut_on_its_way() -> None:
    module = graph("""
        input %x: f32[4]
        submodule 0
        %a: f32[4] = Relu(%x)
        submodule 1
        %b: f32[4] = Neg(%a)
        submodule 2
        %c: f32[4] = Neg(%b)
        submodule 3
        %d: f32[4] = Add(%c, %a)
        output %d
    """)
    assert [p.phases["prefill"].crossing_bytes for p in profiled(module)] == [0, 16, 32, 32]


STEP = Step("prefill", {"n": 100}, 1)


def peak(body: str, kept: tuple[str, ...] = ()) -> int:
    g = graph(body).graph
    values = {value for value in g.values() if value.name in kept} | set(g.outputs)
    return peak_bytes(g.nodes, values, STEP)


def test_peak_of_a_chain_is_two_values() -> None:
    chain = """
        input %x: f32[n]
        %a: f32[n] = Relu(%x)
        %b: f32[n] = Relu(%a)
        %c: f32[n] = Relu(%b)
        output %c
    """
    assert peak(chain) == 800
    assert peak(chain, kept=("a",)) == 1200


def test_peak_counts_views_once_and_states_never() -> None:
    body = """
        input %x: f32[n]
        input %position: i64[1]
        state %s: f32[1, 1, 512, n]
        const %to = i64[4] [1, 1, 1, -1]
        %a: f32[1, 1, 1, n] = Reshape(%x, %to)
        %full: f32[1, 1, 512, n] = partc.UpdateState(%s, %a, %position)
        %b: f32[n] = partc.Odd(%a, %full)
        output %b
    """
    assert peak(body) == 800  # %x, which %a is a view of, and %b


def test_peak_holds_at_the_largest_sizes_and_includes_scores() -> None:
    scores = 4 * 4 * 512 * 512
    assert scores < llama()[1].phases["prefill"].peak_bytes < 2 * scores
    assert llama()[1].phases["decode"].peak_bytes < scores / 100


def test_a_task_without_states_has_one_phase() -> None:
    module = graph("input %x: f32[4]\n%a: f32[4] = Relu(%x)\noutput %a", task="feature-extraction")
    assert list(profiled(module, "form-submodules,")[0].phases) == ["prefill"]


def test_a_symbol_without_a_largest_value() -> None:
    module = graph("input %x: f32[2*rows]\n%a: f32[2*rows] = Relu(%x)\noutput %a")
    with pytest.raises(ModelError, match=r"'rows' \(in '2\*rows'\) has no largest value") as caught:
        profiled(module, "form-submodules,")
    assert '"dims": {"rows": 128}' in str(caught.value.hint)


def test_profiles_survive_the_text_form() -> None:
    module = decoder("llama")
    profiled(module, "find-cuts,form-submodules,")
    assert parse_module(print_module(module)).profile == module.profile
