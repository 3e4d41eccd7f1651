"""Graphs on quantised weights: what they become, what is shared, and where it lies in the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from partc.ir.graph import Graph, Module
from partc.ir.panels import panels
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module
from partc.pipeline.contract import Context, no_progress
from passes.quantize_weights import QuantizeWeights
from targets.weights import write_weights

pytestmark = pytest.mark.tvm
pytest.importorskip("tvm")

WIDTH, INNER, VOCAB = 96, 160, 70
TEXT = f"""partc-ir 1
model {{"name": "m", "task": "graph", "folder": "FOLDER"}}
graph part_0 opset 24 {{
  input %ids: i64[3]
  weight %table = f32[{VOCAB}, {WIDTH}] from "m.safetensors"#"table"
  weight %head = f32[{WIDTH}, {VOCAB}] from "m.safetensors"#"table" |> transpose(1, 0)
  weight %q = f32[{WIDTH}, {WIDTH}] from "m.safetensors"#"q"
  weight %k = f32[{WIDTH}, 32] from "m.safetensors"#"k"
  weight %gate = f32[{WIDTH}, {INNER}] from "m.safetensors"#"gate"
  weight %up = f32[{WIDTH}, {INNER}] from "m.safetensors"#"up"
  weight %down = f32[{INNER}, {WIDTH}] from "m.safetensors"#"down"
  weight %bias = f32[{WIDTH}] from "m.safetensors"#"bias"
  %x: f32[3, {WIDTH}] = Gather(%table, %ids)
  %a: f32[3, {WIDTH}] = MatMul(%x, %q)
  %b: f32[3, 32] = MatMul(%x, %k)
  %y: f32[3, {WIDTH}] = Add(%a, %bias)
  %g: f32[3, {INNER}] = MatMul(%y, %gate)
  %s: f32[3, {INNER}] = Swish(%g)
  %u: f32[3, {INNER}] = MatMul(%y, %up)
  %m: f32[3, {INNER}] = Mul(%s, %u)
  %d: f32[3, {WIDTH}] = MatMul(%m, %down)
  %z: f32[3, {WIDTH}] = Add(%d, %y)
  %logits: f32[3, {VOCAB}] = MatMul(%z, %head)
  output %logits
  output %b
}}
"""


@pytest.fixture(params=["int4", "int8"])
def module(request: pytest.FixtureRequest, tmp_path: Path) -> Module:
    rng = np.random.default_rng(2)
    shapes = {"table": (VOCAB, WIDTH), "q": (WIDTH, WIDTH), "k": (WIDTH, 32), "gate": (WIDTH, INNER),
              "up": (WIDTH, INNER), "down": (INNER, WIDTH), "bias": (WIDTH,)}  # fmt: skip
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "m.safetensors")
    found = parse_module(TEXT.replace("FOLDER", str(tmp_path)))
    found.info = replace(found.info, quantize=Quantization(*[request.param] * 3))
    QuantizeWeights().apply(found, Context())
    return found


def written(graph: Graph) -> Graph:
    from targets.tvm.fuse import fuse_for_processor
    from targets.tvm.quantized import write_quantized

    write_quantized([graph])
    fuse_for_processor(graph, frozenset())
    return graph


def test_products_are_joined_with_their_neighbours_and_share_quantised_rows(module: Module) -> None:
    graph = written(module.graph)
    assert [node.op for node in graph.nodes] == [
        "tvm.QuantizedRows",
        "tvm.QuantizeActivations", "tvm.QuantizedProduct", "tvm.QuantizedProductPlus",
        "tvm.QuantizeActivations", "tvm.QuantizedGatedProduct",
        "tvm.QuantizeActivations", "tvm.QuantizedProductPlus",
        "tvm.QuantizeActivations", "tvm.QuantizedProduct",
    ]  # fmt: skip


def test_a_table_and_its_head_are_stored_once_and_aligned(module: Module, tmp_path: Path) -> None:
    graph = written(module.graph)
    weights = graph.weights()
    assert sum("table" in weight.name for weight in weights) == 1
    places = write_weights({"part_0": weights}, module.info, tmp_path, no_progress)
    for weight, placed in places.items():
        assert weight.dtype == "f32" or placed.entry.offset % 64 == 0
    table = next(weight for weight in weights if "table" in weight.name)
    found = load_file(tmp_path / "weights/part_0.safetensors")[places[table].entry.name]
    original = load_file(tmp_path / "m.safetensors")["table"]
    bits = int(module.info.quantize.weights[3:]) if module.info.quantize else 0
    np.testing.assert_array_equal(found, panels(original, bits, 32 if bits == 4 else 0))
