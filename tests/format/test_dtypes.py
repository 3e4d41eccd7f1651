from __future__ import annotations

import numpy as np

from partc.format.dtypes import as_float32


def test_bfloat16() -> None:
    bits = np.array([0x3F80, 0xC000, 0x7F80], np.uint16)
    assert as_float32(bits, "bfloat16").tolist() == [1.0, -2.0, float("inf")]
