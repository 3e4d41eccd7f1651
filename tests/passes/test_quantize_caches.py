"""`quantize-caches`: which caches hold 8 bits, what they cost, and that the graph computes nearly the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partc.errors import ModelError
from partc.ir.costs import node_cost
from partc.ir.graph import Module, Node
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module, print_module
from partc.ir.workload import Step
from partc.pipeline.contract import Context
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass, load_passes
from passes.quantize_caches import QuantizeCaches
from tests.passes.models import HEAD, KV_HEADS, decoder, graph
from tests.targets.compiled_steps import Reference

CACHE = Quantization(cache="int8")
LINES = """
  input %q: f32[batch, 4, sequence, 8]
  input %k: f32[batch, 2, sequence, 8]
  input %v: f32[batch, 2, sequence, 8]
  input %position: i64[batch]
  state %keys: f32[batch, 2, 16, 8]
  state %values: f32[batch, 2, 16, 8]
  %key: f32[batch, 2, 16, 8] = partc.UpdateState(%keys, %k, %position)
  %value: f32[batch, 2, 16, 8] = partc.UpdateState(%values, %v, %position)
  %y: f32[batch, 4, sequence, 8] = partc.Attention(%q, %key, %value, %position) {scale = 0.3, causal = 1}
  output %y
"""


def small(lines: str = LINES) -> Module:
    module = graph(lines, dims={"batch": 1, "sequence": 16})
    module.info = replace(module.info, quantize=CACHE)
    return module


def quantized(module: Module) -> Module:
    """The module behind the pass, its sizes inferred anew."""
    assert QuantizeCaches().apply(module, Context())
    load_pass("infer-sizes").apply(module, Context())
    return module


def nodes(module: Module, op: str) -> list[Node]:
    return [node for node in module.graph.nodes if node.op == f"partc.{op}"]


def test_every_cache_of_a_decoder_holds_8_bits_and_a_scale_for_every_token_and_head() -> None:
    llama = decoder("llama", max_requests=3)
    llama.info = replace(llama.info, quantize=CACHE)
    kinds = {state.name: (state.dtype, state.shape) for state in quantized(llama).graph.states()}
    cache, scales = ("batch", KV_HEADS, 512, HEAD), ("batch", KV_HEADS, 512, 1)
    names = [f"cache.{layer}.{what}" for layer in range(2) for what in ("key", "value")]
    assert kinds == {
        **dict.fromkeys(names, ("i8", cache)),
        **{f"{name}.scales": ("f32", scales) for name in names},
    }
    assert not nodes(llama, "Attention")


def test_plans_count_the_small_caches() -> None:
    passes = (
        "quantize-caches,find-cuts,form-submodules,coarsen-submodules,map-dependencies,profile-submodules"
    )
    module = decoder("llama")
    module.info = replace(module.info, quantize=CACHE)
    run_passes(module, load_passes(passes))
    states = sum(part.state_bytes for part in module.profile or ())
    assert states == 2 * 2 * KV_HEADS * 512 * (HEAD + 4)


def test_a_step_reads_the_visible_rows_alone() -> None:
    before, after = small(), quantized(small())
    step = Step("decode", {"batch": 1, "sequence": 1}, context=10)
    plain = node_cost(nodes(before, "Attention")[0], step)
    small_one = node_cost(nodes(after, "QuantizedAttention")[0], step)
    rows, queries = 10 * 2, 2 * 4 * 8 * 4
    assert plain.moved_bytes == queries + 2 * rows * 8 * 4
    assert small_one.moved_bytes == queries + 2 * rows * (8 + 4)
    assert small_one.flops == plain.flops


def test_the_graph_computes_nearly_the_same(tmp_path: Path) -> None:
    dims, rng = {"batch": 1, "sequence": 16}, np.random.default_rng(0)
    plain, small_one = (Reference(m.graph, tmp_path, dims) for m in (small(), quantized(small())))
    for position, rows in ((0, 7), (7, 1), (8, 1)):
        inputs = {name: rng.standard_normal((1, heads, rows, 8)).astype(np.float32) for name, heads in
                  (("q", 4), ("k", 2), ("v", 2))}  # fmt: skip
        inputs["position"] = np.array([position])
        right, found = (reference.run(inputs)["y"] for reference in (plain, small_one))
        assert 0 < np.abs(found - right).max() < 0.03
    scales = {s.name: a for s, a in small_one.values.items() if s.name.endswith(".scales")}
    assert np.count_nonzero(scales["keys.scales"]) == 2 * 9, "a scale for every head and token so far"


@pytest.mark.parametrize(
    "more", ["output %key", "%z: f32[batch, 2, 16, 8] = Neg(%value)\n  output %z", "output %values"]
)
def test_a_cache_that_something_else_reads_keeps_its_precision(more: str) -> None:
    module = small(LINES + f"  {more}\n")
    before = print_module(module)
    with pytest.raises(ModelError, match="there is no cache to quantise"):
        QuantizeCaches().apply(module, Context())
    assert print_module(module) == before


def test_a_cache_of_two_attentions_is_quantised_with_both_or_with_none() -> None:
    second = "%w: f32[batch, 4, sequence, 8] = partc.Attention(%q, {}, %position) {{scale = 0.2, causal = 1}}"
    both = small(LINES + f"  {second.format('%key, %value')}\n  output %w\n")
    assert len(nodes(quantized(both), "QuantizedAttention")) == 2
    assert len(nodes(both, "QuantizeRows")) == 2
    other = "%u: f32[batch, 2, sequence, 8] = Neg(%v)"
    mixed = small(LINES + f"  {other}\n  {second.format('%key, %u')}\n  output %w\n")
    with pytest.raises(ModelError, match="there is no cache to quantise"):
        QuantizeCaches().apply(mixed, Context())


def test_without_caches_it_is_refused() -> None:
    lines = "input %x: f32[batch]\n  %y: f32[batch] = Neg(%x)\n  output %y"
    with pytest.raises(ModelError, match="there is no cache to quantise") as caught:
        QuantizeCaches().apply(small(lines), Context())
    assert caught.value.hint == "remove `cache: int8` from `quantize` in model.yaml"


def test_it_does_nothing_unless_it_is_asked_for_and_nothing_twice() -> None:
    module = decoder("llama")
    for wanted in (None, Quantization("int8", "int8", "int8")):
        module.info = replace(module.info, quantize=wanted)
        assert not QuantizeCaches().apply(module, Context())
    module.info = replace(module.info, quantize=CACHE)
    assert QuantizeCaches().apply(module, Context())
    text = print_module(module)
    assert not QuantizeCaches().apply(module, Context())
    assert print_module(parse_module(text)) == text
