"""Weights in panels: what is packed, what it looks like, and that tied embeddings are stored once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from partc.bundle.tensors import open_tensors
from partc.ir.graph import Module
from partc.ir.text import parse_module
from partc.ir.weights import materialize, print_expr
from partc.pipeline.contract import no_progress
from targets.tvm.layout import PANEL, packable, packed_shape, packed_source, unify_products
from targets.weights import write_weights

pytestmark = pytest.mark.tvm

ROWS, COLUMNS = 8, 37
"""37 columns are two panels and a third that is mostly padding."""
TIED = f"""partc-ir 1
model {{"name": "m", "task": "graph", "folder": "FOLDER"}}
graph part_0 opset 24 {{
  input %ids: i64[3]
  weight %table = f32[{COLUMNS},{ROWS}] from "model.safetensors"#"table"
  weight %head = f32[{ROWS},{COLUMNS}] from "model.safetensors"#"table" |> transpose(1, 0)
  weight %dense = f32[{ROWS},{ROWS}] from "model.safetensors"#"dense"
  weight %bias = f32[{ROWS}] from "model.safetensors"#"bias"
  %x: f32[3,{ROWS}] = Gather(%table, %ids)
  %h: f32[3,{ROWS}] = Gemm(%x, %dense, %bias) {{transB=1}}
  %y: f32[3,{COLUMNS}] = MatMul(%h, %head)
  output %y
}}
"""


@pytest.fixture
def module(tmp_path: Path) -> Module:
    rng = np.random.default_rng(2)
    shapes = {"table": (COLUMNS, ROWS), "dense": (ROWS, ROWS), "bias": (ROWS,)}
    save_file(
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()},
        tmp_path / "model.safetensors",
    )
    return parse_module(TIED.replace("FOLDER", str(tmp_path)))


def test_panels_hold_the_columns_and_zeros_behind_them(module: Module) -> None:
    head = next(weight for weight in module.graph.weights() if weight.name == "head")
    read = open_tensors(module.info)
    assert head.source is not None
    plain, packed = materialize(head.source, read), materialize(packed_source(head), read)
    assert packed.shape == packed_shape(head) == (3, ROWS, PANEL)
    for column in range(3 * PANEL):
        expected = plain[:, column] if column < COLUMNS else np.zeros(ROWS)
        np.testing.assert_array_equal(packed[column // PANEL, :, column % PANEL], expected)
    assert "pad(1, 11)" in print_expr(packed_source(head))


def test_everything_that_multiplies_reads_panels(module: Module) -> None:
    unify_products([module.graph])
    assert [node.op for node in module.graph.nodes] == ["tvm.GatherColumns", "MatMul", "Add", "MatMul"]
    assert packable([module.graph]) == {"table.turned", "dense.turned", "head"}


def test_a_table_is_not_turned_where_the_head_is_elsewhere(module: Module) -> None:
    module.graph.nodes.pop()
    module.graph.outputs = list(module.graph.nodes[-1].outputs)
    unify_products([module.graph])
    assert packable([module.graph]) == {"dense.turned"}
    assert module.graph.nodes[0].op == "Gather"


def test_a_weight_that_something_else_reads_is_not_packed(module: Module) -> None:
    module.graph.nodes[1].inputs[1] = module.graph.nodes[1].inputs[0]
    head = next(weight for weight in module.graph.weights() if weight.name == "head")
    module.graph.outputs.append(head)
    assert "head" not in packable([module.graph])


def test_tied_weights_are_stored_once(module: Module, tmp_path: Path) -> None:
    unify_products([module.graph])
    weights = {weight.name: weight for weight in module.graph.weights()}
    places = write_weights({"part_0": weights.values()}, module.info, tmp_path, no_progress)
    assert places[weights["table.turned"]] == places[weights["head"]]
    size = (tmp_path / "weights/part_0.safetensors").stat().st_size
    assert size < 4 * (COLUMNS * ROWS + ROWS * ROWS + ROWS) + 600
