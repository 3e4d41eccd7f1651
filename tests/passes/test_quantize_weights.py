"""`quantize-weights`: what becomes integers, what stays, and that the graph computes what the weights then say."""

from __future__ import annotations

import numpy as np
import pytest

from partc.errors import ModelError
from partc.ir.costs import node_cost
from partc.ir.evaluate import evaluate_node
from partc.ir.graph import Constant, Module
from partc.ir.text import parse_module, print_module
from partc.ir.weight_formats import format_of, quantize, scales
from partc.ir.weights import Array, Leaf
from partc.ir.workload import Step
from partc.pipeline.contract import Context
from partc.pipeline.registry import load_pass
from passes.quantize_weights import QuantizeWeights
from tests.passes.interpreter import Checkpoint, run

HEADER = (
    'partc-ir 1\nmodel {{"name": "m", "task": "graph", "dims": {{"rows": 4}}, "quantize": {quantize}}}\n'
    "graph g opset 20 {{\n{lines}\n}}\n"
)
INT4 = '{"weights": "int4", "head": "int4", "embeddings": "int4", "block": 16}'
INT8 = '{"weights": "int8", "head": "int8", "embeddings": "int8"}'
INT8_BLOCKS = INT4.replace("int4", "int8_blocks")

PRODUCTS = """
  input %x: f32[rows, 24]
  weight %a = f32[24, 8] from "m"#"a"
  weight %b = f32[20, 8] from "m"#"b"
  weight %bias = f32[20] from "m"#"bias"
  weight %c = f32[20, 12] from "m"#"c"
  %h: f32[rows, 8] = MatMul(%x, %a)
  %r: f32[rows, 8] = Relu(%h)
  %i: f32[rows, 20] = Gemm(%r, %b, %bias) {transB = 1}
  %s: f32[rows, 20] = Relu(%i)
  %y: f32[rows, 12] = Gemm(%s, %c) {transB = 0}
  output %y
"""
TIED = """
  input %tokens: i64[rows]
  weight %t = f32[32, 24] from "m"#"t"
  weight %u = f32[24, 32] from "m"#"t" |> transpose(1, 0)
  %x: f32[rows, 24] = Gather(%t, %tokens)
  %y: f32[rows, 32] = MatMul(%x, %u)
  output %y
"""


def module_of(lines: str, quantize: str = INT4) -> Module:
    return parse_module(HEADER.format(lines=lines, quantize=quantize))


def quantized(lines: str, quantize: str = INT4) -> Module:
    """The module behind the pass, its sizes inferred anew."""
    module = module_of(lines, quantize)
    assert QuantizeWeights().apply(module, Context())
    load_pass("infer-sizes").apply(module, Context())
    return module


def operators(module: Module) -> list[str]:
    return [node.op.rpartition(".")[2] for node in module.graph.nodes]


class Rounded(Checkpoint):
    """The tensors of a checkpoint as they are behind quantisation along their second axis."""

    def __init__(self, plain: Checkpoint, bits: int, block: int, turned: tuple[str, ...]) -> None:
        self.shapes, self._plain, self._bits, self._block, self._turned = (
            plain.shapes,
            plain,
            bits,
            block,
            turned,
        )

    def read(self, leaf: Leaf) -> Array:
        whole = self._plain.read(leaf)
        if whole.ndim != 2:
            return whole
        matrix = whole.T if leaf.key in self._turned else whole
        how = self._bits, self._block
        stored = quantize(matrix, *how), scales(matrix, *how)
        found = format_of(*how).dequantize(*stored)[:, : matrix.shape[1]]
        return found.T if leaf.key in self._turned else found


@pytest.mark.parametrize(("text", "bits", "block"), [(INT4, 4, 16), (INT8, 8, 0), (INT8_BLOCKS, 8, 16)])
@pytest.mark.parametrize(("lines", "turned"), [(PRODUCTS, ("a", "c")), (TIED, ())])
def test_the_graph_computes_with_the_rounded_weights(
    rng: np.random.Generator, lines: str, turned: tuple[str, ...], text: str, bits: int, block: int
) -> None:
    before, after = module_of(lines, text), quantized(lines, text)
    checkpoint = Checkpoint(before.graph)
    name = before.graph.inputs[0].name
    feeds = {"x": rng.standard_normal((4, 24)).astype(np.float32), "tokens": np.array([3, 0, 31, 3])}
    (expected,) = run(before.graph, {name: feeds[name]}, Rounded(checkpoint, bits, block, turned))
    (found,) = run(after.graph, {name: feeds[name]}, checkpoint)
    assert np.allclose(found.astype(float), expected.astype(float), rtol=1e-4, atol=1e-5)
    (plain,) = run(before.graph, {name: feeds[name]}, checkpoint)
    assert not np.allclose(found.astype(float), plain.astype(float), rtol=1e-4, atol=1e-5)


def test_every_orientation_becomes_the_same_operator() -> None:
    module = quantized(PRODUCTS)
    assert operators(module) == [
        "QuantizedMatMul", "Relu", "QuantizedMatMul", "Add", "Relu", "QuantizedMatMul"
    ]  # fmt: skip
    shapes = {w.name: w.shape for w in module.graph.weights() if w.dtype == "u8"}
    assert shapes == {"a.int4": (8, 2, 8), "b.int4": (20, 1, 8), "c.int4": (12, 2, 8)}


def test_a_tied_head_and_table_share_their_data() -> None:
    module = quantized(TIED)
    assert [weight.name for weight in module.graph.weights()] == ["t.int4", "t.int4.scales"]
    assert operators(module) == ["QuantizedGather", "Slice", "QuantizedMatMul"]


def test_a_table_and_a_head_of_other_precisions() -> None:
    mixed = '{"weights": "int4", "head": "int8", "embeddings": "none", "block": 16}'
    module = quantized(TIED, mixed)
    assert operators(module) == ["Gather", "QuantizedMatMul"]
    assert module.graph.nodes[1].attributes == {"bits": 8, "block": 0}


@pytest.mark.parametrize(
    ("behind", "head"),
    [
        ("%y: f32[rows, 8] = Identity(%z)", True),
        ("const %two = f32[] [2.0]\n%w: f32[rows, 8] = Div(%z, %two)\n%y: f32[rows, 8] = Tanh(%w)", True),
        ("%y: f32[rows, 8] = Relu(%z)", False),
        ("%y: f32[rows, 8] = Add(%z, %x)", True),
        ("%w: f32[rows, 8] = Relu(%x)\n%y: f32[rows, 8] = Add(%z, %w)", False),
    ],
)
def test_the_head_is_the_product_that_makes_the_logits(behind: str, head: bool) -> None:
    lines = f"""
      input %x: f32[rows, 8]
      weight %a = f32[8, 8] from "m"#"a"
      %h: f32[rows, 8] = MatMul(%x, %a)
      weight %b = f32[8, 8] from "m"#"b"
      %z: f32[rows, 8] = MatMul(%h, %b)
      {behind}
      output %y"""
    module = quantized(lines, '{"weights": "int4", "head": "none", "embeddings": "none"}')
    assert operators(module)[:2] == ["QuantizedMatMul", "MatMul" if head else "QuantizedMatMul"]


def test_routers_positions_and_experts_keep_their_precision() -> None:
    module = quantized(
        """
      input %tokens: i64[batch, sequence]
      input %index: i64[sequence]
      const %two = i64[1] [2]
      weight %t = f32[32, 16] from "m"#"t"
      weight %p = f32[8, 16] from "m"#"p"
      weight %router = f32[16, 4] from "m"#"router"
      weight %experts = f32[4, 16, 16] from "m"#"experts"
      weight %head = f32[16, 4] from "m"#"head"
      %x: f32[batch, sequence, 16] = Gather(%t, %tokens)
      %q: f32[sequence, 16] = Gather(%p, %index)
      %h: f32[batch, sequence, 16] = Add(%x, %q)
      %g: f32[batch, sequence, 4] = MatMul(%h, %router)
      %s: f32[batch, sequence, 4] = Softmax(%g)
      %values: f32[batch, sequence, 2], %chosen: i64[batch, sequence, 2] = TopK(%s, %two)
      %picked: f32[batch, sequence, 2, 16, 16] = Gather(%experts, %chosen)
      %y: f32[batch, sequence, 4] = MatMul(%h, %head)
      output %y, %picked""".replace("batch", "rows").replace("sequence", "s")
    )
    assert operators(module) == [
        "QuantizedGather", "Gather", "Add", "MatMul", "Softmax", "TopK", "Gather", "QuantizedMatMul"
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_scales_have_the_type_of_the_activations(dtype: str) -> None:
    module = quantized(PRODUCTS.replace("f32", dtype))
    scale = next(weight for weight in module.graph.weights() if weight.name == "a.int4.scales")
    assert scale.dtype == dtype
    assert f"scales(4, 16) |> cast({dtype})" in print_module(module)


def test_nothing_to_quantise_is_refused() -> None:
    module = module_of("input %x: f32[rows, 8]\n%y: f32[rows, 8] = Relu(%x)\noutput %y")
    with pytest.raises(ModelError, match="nothing to quantise"):
        QuantizeWeights().apply(module, Context())


def test_twice_is_once() -> None:
    module = quantized(PRODUCTS)
    before = print_module(module)
    assert not QuantizeWeights().apply(module, Context())
    assert print_module(module) == before


def test_the_text_round_trips_with_its_header() -> None:
    module = quantized(TIED)
    again = parse_module(print_module(module))
    assert again.info == module.info
    assert print_module(again) == print_module(module)


def test_costs_are_those_of_the_small_weights() -> None:
    step = Step("decode", {"rows": 2}, 1)
    plain, small = module_of(TIED), quantized(TIED)
    before, after = (
        {node.op: node_cost(node, step) for node in module.graph.nodes} for module in (plain, small)
    )
    product = after["partc.QuantizedMatMul"]
    assert product.flops == before["MatMul"].flops
    weights = 32 * 32 // 2 + 32 * 2 * 4
    assert product.moved_bytes == weights + 2 * 24 * 4 + 2 * 32 * 4
    rows = 2 * weights // 32
    assert after["partc.QuantizedGather"].moved_bytes == rows + 2 * 8 + 2 * 32 * 4


def test_constants_are_folded_with_the_same_arithmetic() -> None:
    module = module_of(
        'const %i = i64[2] [0, 1]\nweight %d = i8[4, 4] from "m"#"d"\nweight %s = f32[4] from "m"#"s"\n'
        "%y: f32[2, 4] = partc.QuantizedGather(%d, %s, %i) {bits = 8, block = 0}\noutput %y"
    )
    data, scale = np.arange(16, dtype=np.int8).reshape(4, 4), np.array([1, 2, 3, 4], np.float32)
    index = module.graph.nodes[0].inputs[2]
    assert isinstance(index, Constant)
    found = evaluate_node(module.graph.nodes[0], [data, scale, index.array], 20)
    assert found is not None
    np.testing.assert_array_equal(found[0], [[0, 1, 2, 3], [8, 10, 12, 14]])
