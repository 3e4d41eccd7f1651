"""Numbers of float16 from their bits, for devices that have no such type and no subnormal numbers."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tvm
tvm = pytest.importorskip("tvm")

from tvm.script import tirx as T  # noqa: E402

from targets.tvm.gpu.kernels.threads import half_bits  # noqa: E402
from targets.tvm.kernels.script import Buffer, prim_func, store  # noqa: E402


def test_every_number_of_float16_is_made_of_normal_ones() -> None:
    def write(bits: Buffer, y: Buffer) -> None:
        with T.serial(1 << 16) as i:
            store(y, [i], half_bits(bits[i]))

    kernel = prim_func({"bits": ((1 << 16,), "int32"), "y": ((1 << 16,), "float32")}, write)
    built = tvm.compile(tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")}), target="llvm")
    bits = np.arange(1 << 16, dtype=np.int32)
    found = tvm.runtime.tensor(np.zeros(1 << 16, np.float32))
    built["main"](tvm.runtime.tensor(bits), found)
    expected = bits.astype(np.uint16).view(np.float16).astype(np.float32)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found.numpy()[finite].view(np.int32), expected[finite].view(np.int32))
    assert (np.abs(found.numpy()[~finite]) >= 65504).all()
