"""partc.QuantizedExperts in onnxruntime against the arithmetic that it stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from partc.ir.weight_formats import format_of, quantize, scales
from targets.ort import OrtTarget
from tests.targets.numpy_attention import Array
from tests.targets.ort_session import Session

pytestmark = pytest.mark.ort

TOLERANCE = 0.03
"""Of the largest result: activations are rounded to 8 bits."""
ROWS = 40
EXACT = OrtTarget(accuracy_level=1)
CHOICES = ([2], [0, 0, 0], [3, 1, 3, 0, 2, 1], [1] * 7, [3, 2, 1, 0])
"""Experts of the rows: of a token, all the same, some with none, in any order."""


def session(
    experts: Array,
    folder: Path,
    bits: int,
    block: int,
    target: OrtTarget,
    dtype: str = "f32",
    products: int = 1,
) -> Session:
    """`products` of the same experts one after the other, if they are square."""
    save_file({f"w{index}": np.ascontiguousarray(matrix) for index, matrix in enumerate(experts)},
              folder / "m.safetensors")  # fmt: skip
    rows, columns = experts.shape[1:]
    shape, scale = (
        format_of(bits, block).data_shape(rows, columns, block),
        format_of(bits, block).scales_shape(rows, columns, block),
    )
    cast = "" if dtype == "f32" else f" |> cast({dtype})"
    lines = [f"input %v0: {dtype}[n, {columns}]", "input %chosen: i64[n]"]
    for index in range(len(experts)):
        leaf = f'from "m.safetensors"#"w{index}" |>'
        data = "u8" if bits == 4 else "i8"
        lines += [f"weight %d{index} = {data}{list(shape)} {leaf} quantize({bits}, {block})",
                  f"weight %s{index} = {dtype}{list(scale)} {leaf} scales({bits}, {block}){cast}"]  # fmt: skip
    operands = ", ".join(f"%d{index}, %s{index}" for index in range(len(experts)))
    for number in range(products):
        call = f"partc.QuantizedExperts(%v{number}, %chosen, {operands}) {{bits = {bits}, block = {block}}}"
        lines.append(f"%v{number + 1}: {dtype}[n, {rows}] = {call}")
    header = f'partc-ir 1\nmodel {{"name": "m", "task": "graph", "folder": "{folder}"}}\n'
    text = "\n".join([*lines, f"output %v{products}"])
    return Session(f"{header}graph part_0 opset 24 {{\n{text}\n}}\n", folder, target)


def product(x: Array, chosen: Array, experts: Array, bits: int, block: int) -> Array:
    columns = experts.shape[2]
    small = [
        format_of(bits, block).dequantize(quantize(matrix, bits, block), scales(matrix, bits, block))[
            :, :columns
        ]
        for matrix in experts
    ]
    return np.stack([small[index] @ row for row, index in zip(x.astype(np.float32), chosen, strict=True)])


def error(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 128), (8, 0), (8, 32)])
@pytest.mark.parametrize("columns", [16, 64, 100])
def test_experts(tmp_path: Path, rng: np.random.Generator, bits: int, block: int, columns: int) -> None:
    experts = rng.standard_normal((4, ROWS, columns)).astype(np.float32)
    run = session(experts, tmp_path, bits, block, OrtTarget())
    for choice in CHOICES:
        x, chosen = rng.standard_normal((len(choice), columns)).astype(np.float32), np.array(choice)
        found, expected = run.run(v0=x, chosen=chosen)["v1"], product(x, chosen, experts, bits, block)
        assert error(found, expected) < TOLERANCE
        wrong = product(x, (chosen + 1) % 4, experts, bits, block)
        assert error(found, wrong) > 0.1


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 0), (8, 32)])
def test_accuracy_level_1_is_float32(tmp_path: Path, rng: np.random.Generator, bits: int, block: int) -> None:
    experts = rng.standard_normal((4, ROWS, 64)).astype(np.float32)
    run = session(experts, tmp_path, bits, block, EXACT)
    for choice in CHOICES:
        x, chosen = rng.standard_normal((len(choice), 64)).astype(np.float32), np.array(choice)
        expected = product(x, chosen, experts, bits, block)
        np.testing.assert_allclose(run.run(v0=x, chosen=chosen)["v1"], expected, atol=1e-3)


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 0), (8, 32)])
def test_a_row_does_not_depend_on_its_neighbours(
    tmp_path: Path, rng: np.random.Generator, bits: int, block: int
) -> None:
    """So a prompt in chunks is the prompt in one piece, whoever shares an expert."""
    experts = rng.standard_normal((4, ROWS, 64)).astype(np.float32)
    run = session(experts, tmp_path, bits, block, OrtTarget())
    x, chosen = rng.standard_normal((6, 64)).astype(np.float32), np.array([1, 0, 1, 3, 1, 0])
    x[0] *= 1000
    whole = run.run(v0=x, chosen=chosen)["v1"]
    for row in range(6):
        alone = run.run(v0=x[[row]], chosen=chosen[[row]])["v1"]
        np.testing.assert_allclose(whole[[row]], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 0), (8, 32)])
def test_float16(tmp_path: Path, rng: np.random.Generator, bits: int, block: int) -> None:
    experts = rng.standard_normal((3, ROWS, 64)).astype(np.float16)
    run = session(experts, tmp_path, bits, block, OrtTarget(), "f16")
    x, chosen = rng.standard_normal((4, 64)).astype(np.float16), np.array([2, 0, 2, 1])
    found = run.run(v0=x, chosen=chosen)["v1"]
    assert found.dtype == np.float16
    assert error(found, product(x, chosen, experts, bits, block)) < TOLERANCE


def test_products_of_one_choice_sort_once(tmp_path: Path, rng: np.random.Generator) -> None:
    experts = rng.standard_normal((4, 64, 64)).astype(np.float32) / 8
    run = session(experts, tmp_path, 4, 32, EXACT, products=2)
    operators = [node.op for node in run.graph.nodes]
    assert operators.count("TopK") == operators.count("NonZero") == 1
    assert operators.count("com.microsoft.MatMulNBits") == 2 * len(experts)
    x, chosen = rng.standard_normal((5, 64)).astype(np.float32), np.array([1, 3, 0, 3, 1])
    hidden = product(x, chosen, experts, 4, 32)
    expected = product(hidden, chosen, experts, 4, 32)
    np.testing.assert_allclose(run.run(v0=x, chosen=chosen)["v2"], expected, atol=1e-3)
