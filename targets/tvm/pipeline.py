"""Our passes from Relax to allocations, views and calls of kernels, which `kernel_plan.py` makes a plan of."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from targets.tvm.bound_places import bound_places
from targets.tvm.wide_math import widen_math

VIEWS = ("relax.reshape",)
"""Operators that stay operators: a plan has the same place for both, without code and without a copy."""


def processor_pipeline() -> Any:
    """A pass of TVM: the list below, in order."""
    step = relax.transform
    return tvm.transform.Sequential(
        [
            step.LegalizeOps(skip_ops=list(VIEWS)),  # views stay out, else each becomes a kernel that copies
            bound_places(),  # before fusing: a kernel and its clamps become one where they can
            widen_math(),
            step.AnnotateTIROpPattern(),  # before fusing, which goes by these patterns
            step.FuseOps(),
            step.FuseTIR(),  # element-wise neighbours become one loop
            step.ToNonDataflow(),
            step.RemovePurityChecking(),
            step.CallTIRRewrite(),  # from here on results are tensors that somebody allocates
            step.AttachGlobalSymbol(),
        ]
    )
