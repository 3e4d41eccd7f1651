"""What the tvm target refuses before anything long starts, and that it takes what is right beside it."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from partc.errors import ConfigError, UserError
from partc.ir.graph import Graph, Module
from partc.ir.text import parse_module
from partc.pipeline.registry import load_target
from tests.targets import compiled_steps
from tests.targets.compiled_steps import Compiled

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm


def module_of(lines: str) -> Module:
    header = '{"name": "m", "task": "graph"}'
    return parse_module(f"partc-ir 1\nmodel {header}\ngraph part_0 opset 24 {{\n{lines}\noutput %y\n}}\n")


def lowered(lines: str, options: Mapping[str, Any] | None = None) -> list[Graph]:
    module = module_of(lines)
    return load_target("tvm", options or {}).lower([module.graph], module.info)


STORED = """weight %data = u8[8, 1, 16] from "m"#"w" |> quantize(4, 32)
weight %scales = T[8, 1] from "m"#"w" |> scales(4, 32)"""
QUANTIZED = {
    "partc.QuantizedMatMul": f"""input %x: T[2, 32]
{STORED}
%y: T[2, 8] = partc.QuantizedMatMul(%x, %data, %scales) {{bits = 4, block = 32}}""",
    "partc.QuantizedGather": f"""input %x: i64[2]
{STORED}
%y: T[2, 32] = partc.QuantizedGather(%data, %scales, %x) {{bits = 4, block = 32}}""",
    "partc.QuantizedExperts": f"""input %x: T[2, 32]
input %chosen: i64[2]
{STORED}
%y: T[2, 8] = partc.QuantizedExperts(%x, %chosen, %data, %scales) {{bits = 4, block = 32}}""",
}
CHANGES: dict[str, tuple[str, str, str]] = {
    "blocks of 16": ("32)", "16)", "`block: 32`"),
    "data that partc has not quantised": (" |> quantize(4, 32)", "", "`target: ort`"),
}
"""What cannot be → text, its replacement, and a part of the hint."""


def changed(op: str, what: str) -> str:
    text, other, _ = CHANGES[what]
    lines = QUANTIZED[op].replace(text, other).replace("T[", "f32[")
    if what != "blocks of 16":
        return lines
    return lines.replace("block = 32", "block = 16").replace("[8, 1", "[8, 2").replace("2, 16]", "2, 8]")


@pytest.mark.parametrize("op", QUANTIZED)
@pytest.mark.parametrize("what", CHANGES)
def test_forms_of_quantized_weights_without_kernels_are_refused(op: str, what: str) -> None:
    with pytest.raises(UserError, match=f"no code for {op} with {what}") as caught:
        lowered(changed(op, what))
    assert caught.value.where == f"node y ({op})"
    assert CHANGES[what][2] in (caught.value.hint or "")
    for dtype in ("f32", "f16", "bf16"):
        assert lowered(QUANTIZED[op].replace("T[", f"{dtype}["))


@pytest.mark.parametrize("provider", ["cuda", "opencl"])
@pytest.mark.parametrize("op", QUANTIZED)
def test_quantized_weights_are_taken_on_a_gpu_and_their_forms_refused(op: str, provider: str) -> None:
    target = load_target("tvm", {"provider": provider})
    assert target.refusal(module_of(QUANTIZED[op].replace("T[", "f32[")).graph.nodes[0]) is None
    for what in CHANGES:
        refusal = target.refusal(module_of(changed(op, what)).graph.nodes[0])
        assert refusal is not None
        assert refusal.message.startswith(f"the tvm target has no code for {op} with {what}")


ADDING = {
    "MatMul": "%y: T[2, 2] = MatMul(%x, %x)",
    "Softmax": "%y: T[2, 2] = Softmax(%x)",
    "ReduceSum": "%y: T[1, 1] = ReduceSum(%x)",
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("op", ADDING)
def test_numbers_in_16_bits_are_taken_everywhere(op: str, dtype: str) -> None:
    lines = f"input %x: T[2, 2]\n{ADDING[op]}".replace("T[", f"{dtype}[")
    assert lowered(lines)
    assert load_target("tvm").refusal(module_of(lines).graph.nodes[0]) is None


def test_plans_are_told_of_the_same_nodes_as_compile() -> None:
    """Whatever `refusal` says of a node alone, `lower` says of a graph with it, in the same words."""
    for lines in [changed(op, what) for op in QUANTIZED for what in CHANGES]:
        with pytest.raises(UserError) as caught:
            lowered(lines)
        found = load_target("tvm").refusal(module_of(lines).graph.nodes[0])
        assert found is not None
        assert (found.message, found.where, found.hint) == (
            caught.value.message,
            caught.value.where,
            caught.value.hint,
        )


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


def test_what_is_checked_is_left_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    """A refusal in the middle of a graph leaves TVM's builder usable, too, and TVM has nothing to say."""
    with pytest.raises(UserError) as caught:
        lowered('input %x: f32[2, 2]\n%y: f32[2, 2] = Einsum(%x) {equation = "...ij->...ij"}')
    del caught
    gc.collect()
    assert capfd.readouterr().err == ""
    (graph,) = lowered("input %x: f32[2, 2]\n%y: f32[2, 2] = Relu(%x)")
    assert [node.op for node in graph.nodes] == ["Relu"]


EMPTY = {
    "node a": "const %s = i64[2] [0, 4]\n%a: f32[2, 0], %y: f32[2, 4] = Split(%x, %s) {axis = 1}",
    "graph part_0": "const %n = i64[1] [0]\n%y: f32[2, 0] = Slice(%x, %n, %n, %n)",
}


@pytest.mark.parametrize("where", EMPTY)
def test_tensors_without_elements_are_refused(where: str) -> None:
    with pytest.raises(UserError, match="empty") as caught:
        lowered(f"input %x: f32[2, 4]\n{EMPTY[where]}")
    assert (caught.value.where or "").startswith(where)


LARGE = """input %new: f32[batch, 8, sequence, 128]
input %position: i64[batch]
state %cache: f32[batch, 8, 131072, 128]
%rows: f32[batch, 8, 131072, 128] = partc.UpdateState(%cache, %new, %position)
%y: f32[batch, 8, 131072, 128] = Neg(%rows)
output %y"""


def test_a_tensor_with_places_that_32_bits_do_not_count(tmp_path: Path) -> None:
    """Kernels count so: the last places of 2³¹ numbers would be taken for some before the first."""
    from targets.tvm.builder import ModuleBuilder
    from targets.tvm.kernels.update_state import write_rows

    sizes = (8, 131072, 128, 1, False, "float32", "float32")
    assert ModuleBuilder({}, frozenset()).kernel(write_rows, (15, *sizes)) is not None
    with pytest.raises(
        UserError, match=r"float32\[16, 8, 131072, 128\] has more than the 2147483647"
    ) as caught:
        Compiled(compiled_steps.module_of(LARGE.splitlines(), tmp_path, "tvm", 16), tmp_path / "build")
    assert caught.value.where == "node rows (partc.UpdateState)"
