"""What the processor of this machine computes exactly."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

_CPUINFO = Path("/proc/cpuinfo")


def _saturates() -> bool:
    """Whether onnxruntime adds pairs of 8-bit products in 16 bits, where large ones do not fit: x86 without VNNI."""
    if platform.machine() not in ("x86_64", "AMD64") or not _CPUINFO.exists():
        return False
    return not {"avx512_vnni", "avx_vnni"} & set(_CPUINFO.read_text().split())


SATURATES = _saturates()
exact_int8 = pytest.mark.skipif(
    SATURATES, reason="no VNNI: onnxruntime's products of 8 bits saturate on this processor"
)
"""Mark of tests that hold onnxruntime's int8 products against exact ones."""
