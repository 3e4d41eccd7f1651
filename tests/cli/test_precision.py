"""The line about the precision of weights: bytes by format where there are several."""

from __future__ import annotations

import pytest

from partc.cli.precision import precision_line
from partc.ir.text import parse_module

QUANTIZE = '{{"weights": "{0}", "head": "{0}", "embeddings": "{0}"}}'


def line(precision: str, *products: str) -> str | None:
    quantize = QUANTIZE.format(precision)
    weights = {
        "int4": (
            '%d4 = u8[64, 2, 16] from "m"#"d4"',
            '%s4 = f32[64, 2] from "m"#"s4"',
            "bits = 4, block = 32",
        ),
        "int8_blocks": (
            '%d8 = i8[64, 4, 16] from "m"#"d8"',
            '%s8 = f32[64, 4] from "m"#"s8"',
            "bits = 8, block = 16",
        ),
    }
    lines = [
        f'partc-ir 1\nmodel {{"name": "m", "task": "graph", "quantize": {quantize}}}',
        "graph g opset 20 {",
    ]
    lines += ["  input %x: f32[1, 64]", '  weight %w = f32[64, 64] from "m"#"w"']
    lines += [f"  weight {each}" for name in products for each in weights[name][:2]]
    for name in products:
        data, scales = (each.split(" =")[0] for each in weights[name][:2])
        lines.append(
            f"  %{name}: f32[1, 64] = partc.QuantizedMatMul(%x, {data}, {scales}) {{{weights[name][2]}}}"
        )
    lines += ["  %y: f32[1, 64] = Gemm(%x, %w)", *(f"  output %{name}" for name in (*products, "y")), "}\n"]
    return precision_line(parse_module("\n".join(lines)))


@pytest.mark.parametrize(("precision", "products", "expected"), [
    ("int4", ("int4",), "weights: int4, 2.50 KiB; "),
    ("stored", ("int8_blocks",), "weights: stored, 5.00 KiB int8_blocks; "),
    ("stored", ("int4", "int8_blocks"), "weights: stored, 2.50 KiB int4 and 5.00 KiB int8_blocks; "),
])  # fmt: skip
def test_bytes_are_told_by_format(precision: str, products: tuple[str, ...], expected: str) -> None:
    found = line(precision, *products)
    assert found == f"{expected}16.0 KiB keep theirs, f32[64, 64] w the largest"
