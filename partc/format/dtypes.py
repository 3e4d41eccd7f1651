"""The element types that may travel, and how numpy holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""Any tensor; `bfloat16` is held as its bits in `uint16`, since numpy has no such type."""

DTYPES: dict[str, np.dtype[Any]] = {
    **{
        name: np.dtype(name).newbyteorder("<")
        for name in (
            "bool",
            "int8",
            "uint8",
            "int16",
            "uint16",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "float16",
            "float32",
            "float64",
        )
    },
    "bfloat16": np.dtype("<u2"),
}
"""Name on the wire and in the manifest → little-endian numpy type."""


def as_float32(array: Array, dtype: str) -> npt.NDArray[np.float32]:
    """The numbers of a float tensor whose declared type is `dtype`, as float32."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)
