"""Quantised operators in onnxruntime against the arithmetic that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from partc.errors import UserError
from partc.ir.graph import Constant
from partc.ir.weight_formats import format_of, quantize, scales
from targets.ort import OrtTarget
from tests.targets.numpy_attention import Array
from tests.targets.ort_session import Session

pytestmark = pytest.mark.ort

INT8 = (8, 0)
TOLERANCE = {4: 0.02, 8: 0.03}
"""Share of the largest result: activations have 8 bits, or 7 where the processor is not known to have VNNI."""


def leaf(key: str, bits: int, block: int, shape: str, step: str) -> str:
    dtype = "f32" if step == "scales" else "u8" if bits == 4 else "i8"
    return f'{dtype}[{shape}] from "m.safetensors"#"{key}" |> {step}({bits}, {block})'


def product(rows: int, columns: int, bits: int, block: int) -> str:
    blocks = -(-columns // block) if block else 0
    data = ", ".join(map(str, format_of(bits, block).data_shape(rows, columns, block)))
    scale = f"{rows}, {blocks}" if block else f"{rows}"
    return f"""
    input %x: f32[batch, sequence, {columns}]
    weight %d = {leaf("w", bits, block, data, "quantize")}
    weight %s = {leaf("w", bits, block, scale, "scales")}
    %y: f32[batch, sequence, {rows}] = partc.QuantizedMatMul(%x, %d, %s) {{bits = {bits}, block = {block}}}
    output %y"""


def text(lines: str, folder: Path) -> str:
    header = f'partc-ir 1\nmodel {{"name": "m", "task": "graph", "folder": "{folder}"}}\n'
    return f"{header}graph part_0 opset 24 {{\n{lines}\n}}\n"


def session(lines: str, folder: Path, weight: Array, target: OrtTarget = OrtTarget()) -> Session:  # noqa: B008
    save_file({"w": np.ascontiguousarray(weight)}, folder / "m.safetensors")
    return Session(text(lines, folder), folder, target)


def rounded(weight: Array, bits: int, block: int) -> Array:
    return format_of(bits, block).dequantize(quantize(weight, bits, block), scales(weight, bits, block))[
        :, : weight.shape[1]
    ]


@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 128), (4, 256), INT8, (8, 16), (8, 32)])
@pytest.mark.parametrize("columns", [16, 64, 100, 300])
def test_products(tmp_path: Path, rng: np.random.Generator, bits: int, block: int, columns: int) -> None:
    weight = rng.standard_normal((40, columns)).astype(np.float32)
    run = session(product(40, columns, bits, block), tmp_path, weight)
    x = rng.standard_normal((2, 5, columns)).astype(np.float32)
    expected = x @ rounded(weight, bits, block).T
    error = np.abs(run.run(x=x)["y"] - expected).max() / np.abs(expected).max()
    assert error < TOLERANCE[bits]
    assert np.abs(run.run(x=x)["y"] - x @ weight[::-1].T).max() / np.abs(expected).max() > 0.1


def test_accuracy_level_1_is_float32(tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((40, 64)).astype(np.float32)
    run = session(product(40, 64, 4, 32), tmp_path, weight, OrtTarget(accuracy_level=1))
    x = rng.standard_normal((1, 5, 64)).astype(np.float32)
    np.testing.assert_allclose(run.run(x=x)["y"], x @ rounded(weight, 4, 32).T, atol=1e-4)


@pytest.mark.parametrize(("bits", "block"), [(4, 32), INT8, (8, 32)])
def test_a_row_does_not_depend_on_its_neighbours(
    tmp_path: Path, rng: np.random.Generator, bits: int, block: int
) -> None:
    """So a prompt in chunks is the prompt in one piece, and padding changes nothing."""
    weight = rng.standard_normal((40, 64)).astype(np.float32)
    run = session(product(40, 64, bits, block), tmp_path, weight)
    x = rng.standard_normal((1, 6, 64)).astype(np.float32)
    x[0, 0] *= 1000
    x[0, 1] = 0
    whole = run.run(x=x)["y"]
    for row in range(6):
        np.testing.assert_allclose(whole[:, [row]], run.run(x=x[:, [row]])["y"], rtol=1e-5, atol=1e-5)
    assert not whole[0, 1].any()
    expected = x @ rounded(weight, bits, block).T
    assert np.abs(whole - expected)[0, 2:].max() / np.abs(expected[0, 2:]).max() < TOLERANCE[bits]


@pytest.mark.parametrize(("bits", "block"), [(4, 32), INT8, (8, 32)])
def test_float16(tmp_path: Path, rng: np.random.Generator, bits: int, block: int) -> None:
    weight = rng.standard_normal((40, 64)).astype(np.float16)
    lines = (
        product(40, 64, bits, block)
        .replace("f32", "f16")
        .replace(f"scales({bits}, {block})", f"scales({bits}, {block}) |> cast(f16)")
    )
    run = session(lines, tmp_path, weight)
    x = rng.standard_normal((2, 5, 64)).astype(np.float16)
    found = run.run(x=x)["y"]
    expected = x.astype(np.float32) @ rounded(weight, bits, block).T
    assert found.dtype == np.float16
    assert np.abs(found - expected).max() / np.abs(expected).max() < TOLERANCE[bits]


def test_projections_of_one_input_quantise_it_once(tmp_path: Path, rng: np.random.Generator) -> None:
    lines = (
        product(40, 64, 8, 0).replace("output %y", "")
        + """
    %z: f32[batch, sequence, 40] = partc.QuantizedMatMul(%x, %d, %s) {bits = 8, block = 0}
    output %y, %z"""
    )
    run = session(lines, tmp_path, rng.standard_normal((40, 64)).astype(np.float32))
    operators = [node.op for node in run.graph.nodes]
    assert operators.count("QuantizeLinear") == 1
    assert operators.count("com.microsoft.MatMulIntegerToFloat") == 2


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("columns", [16, 100, 256, 320])
def test_int8_products_by_blocks(tmp_path: Path, rng: np.random.Generator, columns: int, dtype: str) -> None:
    """The same weights to the last bit, so that only the rounding of activations differs."""
    weight = rng.standard_normal((40, columns)).astype(np.float32)
    lines = product(40, columns, 8, 0).replace("f32[batch", f"{dtype}[batch")
    if dtype == "f16":
        lines = lines.replace("f32[40]", "f16[40]").replace("scales(8, 0)", "scales(8, 0) |> cast(f16)")
    run = session(lines, tmp_path, weight, OrtTarget(int8_products="blocks"))
    assert [node.op for node in run.graph.nodes] == ["com.microsoft.MatMulNBits"]
    x = rng.standard_normal((2, 5, columns)).astype(np.float16).astype(np.float32)
    expected = x @ rounded(weight, 8, 0).T
    found = run.run(x=x if dtype == "f32" else x.astype(np.float16))["y"]
    assert np.abs(found - expected).max() / np.abs(expected).max() < TOLERANCE[8]


def test_int8_products_by_blocks_keep_the_weights(tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((40, 320)).astype(np.float32)
    target = OrtTarget(int8_products="blocks", accuracy_level=1)
    run = session(product(40, 320, 8, 0), tmp_path, weight, target)
    x = rng.standard_normal((1, 5, 320)).astype(np.float32)
    np.testing.assert_allclose(run.run(x=x)["y"], x @ rounded(weight, 8, 0).T, atol=1e-3)


def test_a_product_of_one_row_a_step_is_by_blocks(tmp_path: Path, rng: np.random.Generator) -> None:
    """A head is: blocks are the faster way to multiply a row."""
    weight = rng.standard_normal((40, 64)).astype(np.float32)
    run = session(product(40, 64, 8, 0).replace("sequence, ", "1, "), tmp_path, weight)
    assert [node.op for node in run.graph.nodes] == ["com.microsoft.MatMulNBits"]
    x = rng.standard_normal((2, 1, 64)).astype(np.float32)
    expected = x @ rounded(weight, 8, 0).T
    assert np.abs(run.run(x=x)["y"] - expected).max() / np.abs(expected).max() < TOLERANCE[8]


def test_a_head_that_shares_its_table_keeps_its_form(tmp_path: Path, rng: np.random.Generator) -> None:
    """Otherwise its weights would be stored twice."""
    head = product(50, 64, 8, 0).replace("sequence, ", "1, ").replace("output %y", "")
    tokens = "input %tokens: i64[batch, sequence]\n"
    picked = "%e: f32[batch, sequence, 64] = partc.QuantizedGather(%d, %s, %tokens) {bits = 8, block = 0}\n"
    lines = head.replace("input %x", f"{tokens}    input %x") + f"    {picked}    output %y, %e"
    run = session(lines, tmp_path, rng.standard_normal((50, 64)).astype(np.float32))
    assert [weight.dtype for weight in run.graph.weights()].count("u8") == 0


def test_unknown_int8_products() -> None:
    with pytest.raises(UserError, match="no int8 products by 'columns'") as caught:
        OrtTarget(int8_products="columns").check()
    assert "blocks (fast tokens)" in str(caught.value.hint)


def table(rows: int, columns: int, bits: int, block: int) -> str:
    stored = -(-columns // block) * block if block else columns
    data = ", ".join(map(str, format_of(bits, block).data_shape(rows, columns, block)))
    scale = f"{rows}, {stored // block}" if block else f"{rows}"
    return f"""
    input %tokens: i64[batch, sequence]
    weight %d = {leaf("w", bits, block, data, "quantize")}
    weight %s = {leaf("w", bits, block, scale, "scales")}
    %y: f32[batch, sequence, {stored}] = partc.QuantizedGather(%d, %s, %tokens) {{bits = {bits}, block = {block}}}
    output %y"""


@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 256), (8, 0), (8, 16), (8, 32)])
@pytest.mark.parametrize("columns", [16, 64, 100])
def test_tables(tmp_path: Path, rng: np.random.Generator, bits: int, block: int, columns: int) -> None:
    weight = rng.standard_normal((50, columns)).astype(np.float32)
    run = session(table(50, columns, bits, block), tmp_path, weight)
    tokens = np.array([[0, 49, 7], [7, 3, 2]])
    found = run.run(tokens=tokens)["y"]
    np.testing.assert_allclose(found[..., :columns], rounded(weight, bits, block)[tokens], rtol=1e-6)
    assert not found[..., columns:].any()


@pytest.mark.parametrize(("bits", "block"), [(4, 32), INT8, (8, 32)])
def test_a_tied_head_is_stored_once(tmp_path: Path, rng: np.random.Generator, bits: int, block: int) -> None:
    """A table and the head that shares its data: one copy in the file, and both are right."""
    weight = rng.standard_normal((64, 32)).astype(np.float32)
    lines = (
        table(64, 32, bits, block).replace("output %y", "")
        + f"""
    %z: f32[batch, sequence, 64] = partc.QuantizedMatMul(%y, %d, %s) {{bits = {bits}, block = {block}}}
    output %y, %z"""
    )
    run = session(lines, tmp_path, weight)
    size = (tmp_path / "weights" / "part_0.safetensors").stat().st_size
    data = 64 * 32 * bits // 8 + 64 * 4
    assert data < size < data + 600
    tokens = np.array([[5, 63, 5], [0, 1, 2]])
    found = run.run(tokens=tokens)
    rows = rounded(weight, bits, block)[tokens]
    np.testing.assert_allclose(found["y"], rows, rtol=1e-6)
    expected = rows @ rounded(weight, bits, block).T
    assert np.abs(found["z"] - expected).max() / np.abs(expected).max() < TOLERANCE[bits]


@pytest.mark.parametrize("level", [-1, 5])
def test_an_accuracy_level_that_there_is_not(level: int) -> None:
    with pytest.raises(UserError, match="no accuracy level"):
        OrtTarget(accuracy_level=level).check()


@pytest.mark.parametrize(
    ("target", "zero"),
    [
        (OrtTarget(), 64),
        (OrtTarget(arch="x86_64"), 64),
        (OrtTarget(arch="x86_64", features=("avx2", "avx512")), 64),
        (OrtTarget(arch="x86_64", features=("vnni",)), 128),
        (OrtTarget(arch="x86_64", features=("avxvnni",)), 128),
        (OrtTarget(arch="aarch64"), 128),
        (OrtTarget(arch="x86_64", int8_products="rows"), 128),
        (OrtTarget(arch="aarch64", int8_products="narrow-rows"), 64),
    ],
)
def test_products_of_8_bits_follow_the_processor(
    tmp_path: Path, rng: np.random.Generator, target: OrtTarget, zero: int
) -> None:
    """Activations have 7 bits where products of 8 may overflow; the processor that compiles does not matter."""
    target.check_options()
    run = session(product(40, 64, 8, 0), tmp_path, rng.standard_normal((40, 64)).astype(np.float32), target)
    (product_node,) = (node for node in run.graph.nodes if node.op == "com.microsoft.MatMulIntegerToFloat")
    constant = product_node.inputs[4]
    assert isinstance(constant, Constant)
    assert constant.array == zero


def test_the_largest_operands_do_not_overflow(tmp_path: Path) -> None:
    """All of the largest magnitude, where sums of two products in 16 bits would saturate by a third."""
    run = session(product(40, 256, 8, 0), tmp_path, np.ones((40, 256), np.float32))
    x = np.ones((1, 5, 256), np.float32)
    np.testing.assert_allclose(run.run(x=x)["y"], 256, rtol=1e-3)


def test_unknown_features() -> None:
    with pytest.raises(UserError, match="there is no feature 'VNNI'"):
        OrtTarget(features=("VNNI",)).check_options()
