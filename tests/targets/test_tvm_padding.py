"""What the tvm target may pad and what it refuses: rows that mix, rows that are counted or turned, odd states."""

from __future__ import annotations

from typing import Any

import pytest

from partc.errors import UserError
from partc.ir.graph import Module
from partc.ir.text import parse_module
from partc.pipeline.registry import load_target
from targets.tvm.padding import check_padding, check_states

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

IMAGES = "input %x: f32[images, 4, 8]\n"


def _module(lines: str, **model: Any) -> Module:
    fields = {"name": "m", "task": "graph", "dims": {"images": 3}, **model}
    header = str(fields).replace("'", '"')
    return parse_module(f"partc-ir 1\nmodel {header}\ngraph part_0 opset 24 {{\n{lines}\n}}\n")


def _check(lines: str, **model: Any) -> None:
    module = _module(lines, **model)
    check_padding(module.graph, module.info)


APART = {
    "element by element": "%y: f32[images, 4, 8] = Relu(%x)",
    "a product with a weight": f"const %w = f32[8, 2] {[1.0] * 16}\n%y: f32[images, 4, 2] = MatMul(%x, %w)",
    "a product with itself": "%t: f32[images, 8, 4] = Transpose(%x) {perm = [0, 2, 1]}\n"
    "%y: f32[images, 4, 4] = MatMul(%x, %t)",
    "softmax of a row": "%y: f32[images, 4, 8] = Softmax(%x) {axis = 1}",
    "a mean of a row": "%y: f32[images] = ReduceMean(%x) {axes = [1, 2], keepdims = 0}",
    "a flat row": "%y: f32[images, 32] = Flatten(%x) {axis = 1}",
    "two side by side": "%y: f32[images, 4, 16] = Concat(%x, %x) {axis = 2}",
    "the count as a size": "%s: i64[3] = Shape(%x)\n%y: f32[images, 4, 8] = Reshape(%x, %s)",
    "a convolution": f"const %w = f32[2, 4, 3] {[1.0] * 24}\n%y: f32[images, 2, 6] = Conv(%x, %w)",
    "the most probable": "%y: i64[images, 4] = ArgMax(%x) {axis = 2, keepdims = 0}",
}
MIXED = {
    "a mean over rows": "%y: f32[1, 4, 8] = ReduceMean(%x) {axes = [0]}",
    "softmax over rows": "%y: f32[images, 4, 8] = Softmax(%x) {axis = 0}",
    "a running sum": "const %a = i64[] [0]\n%y: f32[images, 4, 8] = CumSum(%x, %a)",
    "rows as columns": "%t: f32[4, images, 8] = Transpose(%x) {perm = [1, 0, 2]}\n"
    "%y: f32[images, 4, 8] = Transpose(%t) {perm = [1, 0, 2]}",
    "rows turned round": "const %b = i64[1] [-1]\nconst %e = i64[1] [-9]\nconst %a = i64[1] [0]\n"
    "%y: f32[images, 4, 8] = Slice(%x, %b, %e, %a, %b)",
    "rows by rows": "%f: f32[images, 32] = Flatten(%x) {axis = 1}\n"
    "%g: f32[images, images] = Gemm(%f, %f) {transB = 1}\n%y: f32[images] = ReduceSum(%g) {axes = [1], keepdims = 0}",
    "divided by the count": "%n: i64[] = Size(%x)\n%c: f32[] = Cast(%n) {to = 1}\n%y: f32[images, 4, 8] = Div(%x, %c)",
    "an operator that is not known": "%y: f32[images, 4, 8] = Hardmax(%x) {axis = 2}",
}


@pytest.mark.parametrize("case", APART)
def test_rows_apart_may_be_padded(case: str) -> None:
    _check(f"{IMAGES}{APART[case]}\noutput %y")


@pytest.mark.parametrize("case", MIXED)
def test_rows_that_may_mix_are_refused(case: str) -> None:
    with pytest.raises(UserError, match="may mix rows of images") as caught:
        _check(f"{IMAGES}{MIXED[case]}\noutput %y")
    assert (caught.value.where or "").startswith("node ")


@pytest.mark.parametrize("case", MIXED)
def test_one_row_is_never_padded(case: str) -> None:
    _check(f"{IMAGES}{MIXED[case]}\noutput %y", dims={"images": 1})


def test_a_result_that_tells_how_many_rows_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="tells how many rows"):
        _check(f"{IMAGES}%y: i64[3] = Shape(%x)\noutput %y")


@pytest.mark.parametrize("size", ["2*images", "images*height"])
def test_a_result_that_cannot_be_cut_back_is_refused(size: str) -> None:
    with pytest.raises(UserError, match="cannot fill up"):
        _check(f"{IMAGES}%y: f32[{size}, 4, 8] = Concat(%x, %x) {{axis = 0}}\noutput %y")


def test_an_image_of_any_height_is_refused() -> None:
    lines = "input %x: f32[images, 3, height]\n%y: f32[images, 3, height] = Relu(%x)\noutput %y"
    with pytest.raises(UserError, match="size 'height' on axis 2"):
        _check(lines, dims={"images": 2, "height": 9})


TRACED = {"task": "text-generation", "dims": {"batch": 2, "sequence": 4}, "max_batch": 2}
JOINED = """input %x: f32[batch, sequence, 8]
const %s = i64[2] [-1, 8]
%f: f32[batch*sequence, 8] = Reshape(%x, %s)
%y: f32[batch*sequence, 8] = Relu(%f)
output %y"""
TURNED = """input %x: f32[batch, sequence, 8]
const %s = i64[2] [-1, 8]
%t: f32[sequence, batch, 8] = Transpose(%x) {perm = [1, 0, 2]}
%f: f32[batch*sequence, 8] = Reshape(%t, %s)
output %f"""
PARTED = """input %x: f32[batch*sequence, 8]
input %as: i64[3]
%y: f32[sequence, batch, 8] = Reshape(%x, %as)
%z: f32[batch, sequence, 8] = Transpose(%y) {perm = [1, 0, 2]}
output %z"""


def test_rows_of_all_sequences_may_be_padded_one_sequence_after_the_other() -> None:
    _check(JOINED, **TRACED)


@pytest.mark.parametrize("lines", [TURNED, PARTED])
def test_rows_of_all_sequences_in_another_order_are_refused(lines: str) -> None:
    with pytest.raises(UserError, match="another order"):
        _check(lines, **TRACED)
    _check(lines, **{**TRACED, "max_batch": 1})


CACHE = """input %x: f32[batch, 2, sequence, 8]
input %position: i64[batch]
state %cache: f32[batch, 2, 16, 8]
%rows: f32[batch, 2, 16, 8] = partc.UpdateState(%cache, %x, %position)
"""


def test_a_state_that_is_updated_and_read_is_right() -> None:
    check_states(_module(f"{CACHE}output %rows").graph)


def test_a_state_whose_update_nobody_reads_is_refused() -> None:
    with pytest.raises(UserError, match="%cache is updated, and nobody reads it"):
        check_states(_module(f"{CACHE}%y: f32[batch, 2, sequence, 8] = Relu(%x)\noutput %y").graph)


def test_a_state_that_is_read_beside_its_update_is_refused() -> None:
    lines = f"{CACHE}%y: f32[batch, 2, 16, 8] = Sub(%rows, %cache)\noutput %y"
    with pytest.raises(UserError, match="%cache is read beside its update"):
        check_states(_module(lines).graph)


def test_an_unknown_operator_is_refused_by_name() -> None:
    module = _module("input %x: f32[2, 8]\n%y: f32[2, 8] = Hardmax(%x)\noutput %y")
    with pytest.raises(UserError, match="no code for Hardmax") as caught:
        load_target("tvm", {}).lower([module.graph], module.info)
    assert caught.value.where == "node y (Hardmax)"
