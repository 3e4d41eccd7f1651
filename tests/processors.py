"""Marks of tests that some processors cannot pass."""

from __future__ import annotations

import pytest

from partc.runtime.cores import architecture, processor_features

_FEATURES = processor_features()
SATURATES = bool(_FEATURES) and architecture() == "x86_64" and not {"avx512_vnni", "avx_vnni"} & _FEATURES
"""Whether onnxruntime adds pairs of 8-bit products in 16 bits, where large ones do not fit: x86 without VNNI."""
exact_int8 = pytest.mark.skipif(
    SATURATES, reason="no VNNI: onnxruntime's products of 8 bits saturate on this processor"
)
"""Mark of tests that hold onnxruntime's int8 products against exact ones."""
