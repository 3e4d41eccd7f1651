"""What the tvm target refuses before anything long starts, and that it takes what is right beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from partc.errors import ConfigError, UserError
from partc.ir.graph import Graph, Module
from partc.ir.text import parse_module
from partc.pipeline.registry import load_target

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm


def module_of(lines: str) -> Module:
    header = '{"name": "m", "task": "graph"}'
    return parse_module(f"partc-ir 1\nmodel {header}\ngraph part_0 opset 24 {{\n{lines}\noutput %y\n}}\n")


def lowered(lines: str, options: Mapping[str, Any] | None = None) -> list[Graph]:
    module = module_of(lines)
    return load_target("tvm", options or {}).lower([module.graph], module.info)


QUANTIZED = {
    "partc.QuantizedMatMul": """input %x: f32[2, 32]
weight %data = u8[8, 1, 16] from "m"#"data"
weight %scales = f32[8, 1] from "m"#"scales"
%y: f32[2, 8] = partc.QuantizedMatMul(%x, %data, %scales) {bits = 4, block = 32}""",
    "partc.QuantizedGather": """input %x: i64[2]
weight %data = u8[8, 1, 16] from "m"#"data"
weight %scales = f32[8, 1] from "m"#"scales"
%y: f32[2, 32] = partc.QuantizedGather(%data, %scales, %x) {bits = 4, block = 32}""",
    "partc.QuantizedExperts": """input %x: f32[2, 32]
input %chosen: i64[2]
weight %data = u8[8, 1, 16] from "m"#"data"
weight %scales = f32[8, 1] from "m"#"scales"
%y: f32[2, 8] = partc.QuantizedExperts(%x, %chosen, %data, %scales) {bits = 4, block = 32}""",
}


@pytest.mark.parametrize("op", QUANTIZED)
def test_quantized_weights_are_refused_with_the_target_that_has_them(op: str) -> None:
    with pytest.raises(UserError, match=f"no code for {op}") as caught:
        lowered(QUANTIZED[op])
    assert caught.value.where == f"node y ({op})"
    hint = caught.value.hint or ""
    assert "`target: ort`" in hint and "quantised model" in hint and "`quantize: none`" in hint


ADDING = {
    "MatMul": "%y: T[2, 2] = MatMul(%x, %x)",
    "Softmax": "%y: T[2, 2] = Softmax(%x)",
    "ReduceSum": "%y: T[1, 1] = ReduceSum(%x)",
}


@pytest.mark.parametrize("short", ["f16", "bf16"])
@pytest.mark.parametrize("op", ADDING)
def test_nothing_is_added_up_in_16_bits(op: str, short: str) -> None:
    lines = f"input %x: T[2, 2]\n{ADDING[op]}"
    with pytest.raises(UserError, match=f"computes {op} in f32, and %x is {short}") as caught:
        lowered(lines.replace("T[", f"{short}["))
    assert "`dtype: float32`" in (caught.value.hint or "")
    assert lowered(lines.replace("T[", "f32["))


def test_plans_are_told_of_the_same_nodes_as_compile() -> None:
    """Whatever `refusal` says of a node alone, `lower` says of a graph with it, in the same words."""
    short = [f"input %x: f16[2, 2]\n{line.replace('T[', 'f16[')}" for line in ADDING.values()]
    for lines in (*QUANTIZED.values(), *short):
        with pytest.raises(UserError) as caught:
            lowered(lines)
        found = load_target("tvm").refusal(module_of(lines).graph.nodes[0])
        assert found is not None
        assert (found.message, found.where, found.hint) == (
            caught.value.message,
            caught.value.where,
            caught.value.hint,
        )
    plain = module_of("input %x: f32[2, 2]\n%y: f32[2, 2] = MatMul(%x, %x)")
    assert load_target("tvm").refusal(plain.graph.nodes[0]) is None


def test_16_bits_may_be_moved_and_widened() -> None:
    assert lowered("input %x: f16[2, 2]\n%t: f16[2, 2] = Transpose(%x)\n%y: f32[2, 2] = Cast(%t) {to = 1}")


@pytest.mark.parametrize(
    ("equation", "message"), [("...ij->...ji", "Einsum with an ellipsis"), ("bij->bji", "")]
)
def test_a_form_that_has_no_code_is_refused_as_an_operator_is(equation: str, message: str) -> None:
    lines = f'input %x: f32[2, 4, 4]\n%y: f32[2, 4, 4] = Einsum(%x) {{equation = "{equation}"}}'
    if not message:
        assert lowered(lines)
        return
    with pytest.raises(UserError, match=f"no code for {message}"):
        lowered(lines)


@pytest.mark.parametrize("option", ["chunks", "batches"])
@pytest.mark.parametrize("sizes", [(0,), (16, -3)])
def test_entries_have_rows_and_sequences(option: str, sizes: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"sizes of at least 1, found {min(sizes)}") as caught:
        lowered("input %x: f32[2]\n%y: f32[2] = Relu(%x)", {option: sizes})
    assert caught.value.where == option


def test_what_is_checked_is_left_as_it_is() -> None:
    """A refusal in the middle of a graph leaves TVM's builder usable, too."""
    with pytest.raises(UserError):
        lowered('input %x: f32[2, 2]\n%y: f32[2, 2] = Einsum(%x) {equation = "...ij->...ij"}')
    (graph,) = lowered("input %x: f32[2, 2]\n%y: f32[2, 2] = Relu(%x)")
    assert [node.op for node in graph.nodes] == ["Relu"]
