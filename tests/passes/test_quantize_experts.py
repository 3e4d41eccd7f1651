"""`quantize-weights` on experts that lie in one tensor: each becomes integers of its own, read alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from partc.ir.costs import node_cost
from partc.ir.graph import Module, Weight
from partc.ir.text import parse_module, print_module
from partc.ir.weight_formats import format_of, quantize, scales
from partc.ir.weights import Array, Join, Leaf, Step, WeightExpr, leaves, materialize
from partc.ir.workload import Step as Workload
from partc.pipeline.contract import Context
from partc.pipeline.registry import load_pass
from passes.quantize_weights import QuantizeWeights
from passes.rewrites.expert_products import expert
from tests.passes.interpreter import Checkpoint, run

INT4 = '{"weights": "int4", "head": "int4", "embeddings": "int4", "block": 16}'
INT8 = '{"weights": "int8", "head": "int8", "embeddings": "int8"}'
INT8_BLOCKS = INT4.replace("int4", "int8_blocks")
UP = """
  input %x: f32[rows, 24]
  input %chosen: i64[rows]
  const %last = i64[1] [-1]
  weight %up = f32[4, 12, 24] from "m"#"up"
  %listed: i64[rows, 1] = Unsqueeze(%chosen, %last)
  %picked: f32[rows, 12, 24] = GatherND(%up, %listed) {batch_dims = 0}
  %column: f32[rows, 24, 1] = Unsqueeze(%x, %last)
  %product: f32[rows, 12, 1] = MatMul(%picked, %column)
  %h: f32[rows, 12] = Squeeze(%product, %last)
"""
DOWN = """
  const %middle = i64[1] [1]
  weight %down = f32[4, 12, 8] from "m"#"down"
  %picks: f32[rows, 12, 8] = GatherND(%down, %listed)
  %line: f32[rows, 1, 12] = Unsqueeze(%h, %middle)
  %products: f32[rows, 1, 8] = MatMul(%line, %picks)
  %y: f32[rows, 8] = Squeeze(%products, %middle)
  output %y
"""


def module_of(lines: str, wanted: str = INT4) -> Module:
    header = f'{{"name": "m", "task": "graph", "dims": {{"rows": 4}}, "quantize": {wanted}}}'
    return parse_module(f"partc-ir 1\nmodel {header}\ngraph g opset 20 {{\n{lines}\n}}\n")


def quantized(lines: str, wanted: str = INT4) -> Module:
    """The module behind the pass, its sizes inferred anew."""
    module = module_of(lines, wanted)
    assert QuantizeWeights().apply(module, Context())
    load_pass("infer-sizes").apply(module, Context())
    return module


def operators(module: Module) -> list[str]:
    return [node.op for node in module.graph.nodes]


def rounded(matrix: Array, bits: int, block: int) -> Array:
    return format_of(bits, block).dequantize(quantize(matrix, bits, block), scales(matrix, bits, block))[
        :, : matrix.shape[1]
    ]


@pytest.mark.parametrize(("wanted", "bits", "block"), [(INT4, 4, 16), (INT8, 8, 0), (INT8_BLOCKS, 8, 16)])
def test_the_graph_computes_with_the_rounded_experts(
    rng: np.random.Generator, wanted: str, bits: int, block: int
) -> None:
    before, after = module_of(UP + DOWN, wanted), quantized(UP + DOWN, wanted)
    assert operators(after) == [
        "partc.QuantizedExperts", "Unsqueeze", "Squeeze", "partc.QuantizedExperts", "Unsqueeze", "Squeeze"
    ]  # fmt: skip
    checkpoint = Checkpoint(before.graph)
    feeds = {"x": rng.standard_normal((5, 24)).astype(np.float32), "chosen": np.array([3, 0, 3, 1, 0])}
    (found,) = run(after.graph, feeds, checkpoint)
    (plain,) = run(before.graph, feeds, checkpoint)
    up, down = (checkpoint.read(Leaf("m", name)) for name in ("up", "down"))
    for row, index in enumerate(feeds["chosen"]):
        hidden = rounded(up[index], bits, block) @ feeds["x"][row]
        expected = rounded(down[index].T, bits, block) @ hidden
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(found, plain, rtol=1e-4, atol=1e-5)


def test_every_expert_has_its_own_data_and_scales() -> None:
    module = quantized(UP + DOWN)
    weights = {weight.name: weight.shape for weight in module.graph.weights()}
    assert len(weights) == 2 * 4 * 2
    assert weights["up.3.int4"] == (12, 2, 8)
    assert weights["up.3.int4.scales"] == (12, 2)
    assert weights["down.0.int4"] == (8, 1, 8)
    text = print_module(module)
    assert '"m"#"up" |> slice(0, 3, 4) |> reshape(12, 24) |> quantize(4, 16)' in text
    assert '"m"#"down" |> slice(0, 0, 1) |> reshape(12, 8) |> transpose(1, 0) |> scales(4, 16)' in text
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("output %y", "output %y, %picks"),
        ("output %y", "%twice: f32[rows, 12, 8] = Add(%picks, %picks)\n  output %y, %twice"),
        ("Unsqueeze(%h, %middle)", "Reshape(%h, %sizes)"),
    ],
    ids=["output", "second reader", "another form"],
)
def test_what_is_no_such_product_keeps_its_precision(old: str, new: str) -> None:
    lines = f"const %sizes = i64[3] [-1, 1, 12]\n{UP}{DOWN}"
    assert old in lines
    module = quantized(lines.replace(old, new))
    assert operators(module).count("partc.QuantizedExperts") == 1
    assert "down" in {weight.name for weight in module.graph.weights()}


def test_experts_are_no_head_and_stay_where_weights_do() -> None:
    module = module_of(UP + DOWN, '{"weights": "none", "head": "int4", "embeddings": "int4", "block": 16}')
    before = print_module(module)
    with pytest.raises(Exception, match="nothing to quantise"):
        QuantizeWeights().apply(module, Context())
    assert print_module(module) == before


@pytest.mark.parametrize("choose", ["ArgMax(%scores) {axis = -1, keepdims = 0}", None])
def test_a_router_keeps_its_precision(choose: str | None) -> None:
    router = """
  weight %router = f32[24, 4] from "m"#"router"
  %scores: f32[rows, 4] = MatMul(%x, %router)"""
    lines = (UP + DOWN).replace("input %chosen: i64[rows]\n", "")
    top = f"{router}\n  %chosen: i64[rows] = {choose or 'Foo(%scores)'}\n  const %last"
    module = quantized(lines.replace("  const %last", top, 1))
    assert ("MatMul" in operators(module)) == (choose is not None)


def test_costs_are_those_of_the_experts_that_are_chosen() -> None:
    before, after = module_of(UP + "output %h"), quantized(UP + "output %h")
    product = next(node for node in after.graph.nodes if node.op == "partc.QuantizedExperts")
    matmul = next(node for node in before.graph.nodes if node.op == "MatMul")
    one = 12 * 2 * 8 + 12 * 2 * 4
    for rows, read in ((1, 1), (3, 3), (9, 4)):
        step = Workload("decode", {"rows": rows}, 1)
        cost = node_cost(product, step)
        assert cost.moved_bytes == read * one + rows * (24 * 4 + 8 + 12 * 4)
        assert cost.flops == node_cost(matmul, step).flops


def tensors() -> Mapping[str, Array]:
    rng = np.random.default_rng(3)
    return {**{f"{name}{i}": rng.standard_normal((6, 4)).astype(np.float32) for name in "gu" for i in range(3)},
            "all": rng.standard_normal((3, 6, 4)).astype(np.float32)}  # fmt: skip


def stack(name: str) -> Join:
    return Join("stack", 0, tuple(Leaf("m", f"{name}{i}") for i in range(3)))


@pytest.mark.parametrize(
    ("source", "read"),
    [
        (Leaf("m", "all"), 1),
        (Step("cast", ("f16",), Leaf("m", "all")), 1),
        (stack("g"), 1),
        (Join("concat", 1, (stack("g"), stack("u"))), 2),
        (Join("concat", 2, (stack("g"), Step("mul", (2.0,), stack("u")))), 2),
        (Join("concat", 1, (Leaf("m", "all"), stack("u"))), 4),
        (Step("transpose", (0, 2, 1), stack("g")), 1),
        (Step("transpose", (1, 0, 2), stack("g")), 3),
        (Step("cast", ("bf16",), Step("transpose", (0, 2, 1), stack("g"))), 1),
    ],
    ids=str,
)
def test_an_expert_is_read_alone(source: WeightExpr, read: int) -> None:
    """`read`: how many tensors of the checkpoint it takes."""
    values = tensors()
    whole = materialize(source, lambda leaf: values[leaf.key])
    for index in range(len(whole)):
        alone = expert(Weight("w", "f32", whole.shape, source=source), index)
        assert len(list(leaves(alone))) == read
        np.testing.assert_array_equal(materialize(alone, lambda leaf: values[leaf.key]), whole[index])
