from __future__ import annotations

import numpy as np
import onnx
import pytest

from partc.format.build import TensorType
from partc.format.dtypes import ELEMENT_TYPES, ElementType, as_float32
from partc.ir.types import BY_LONG


@pytest.mark.parametrize("row", ELEMENT_TYPES, ids=lambda row: row.long)
def test_every_row_agrees_with_the_libraries(row: ElementType) -> None:
    assert (
        onnx.TensorProto.DataType.Value(
            row.long.upper().replace("FLOAT64", "DOUBLE").replace("FLOAT32", "FLOAT")
        )
        == row.onnx
    )
    assert f"tensor({row.onnx_name})" in onnx.defs.get_schema("Cast").type_constraints[0].allowed_type_strs
    assert row.held.itemsize == BY_LONG[row.long].numpy.itemsize
    assert row.long == "bfloat16" or row.held == np.dtype(row.long)


def test_names_are_unique() -> None:
    for column in ("long", "short", "onnx", "onnx_name", "safetensors"):
        assert len({getattr(row, column) for row in ELEMENT_TYPES}) == len(ELEMENT_TYPES)


def test_bfloat16() -> None:
    bits = np.array([0x3F80, 0xC000, 0x7F80], np.uint16)
    assert as_float32(bits, "bfloat16").tolist() == [1.0, -2.0, float("inf")]


def test_bytes_of_a_tensor() -> None:
    assert TensorType("float16", ("batch", 3)).bytes({"batch": 2}) == 12
