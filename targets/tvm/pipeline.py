"""Our passes from Relax to what the virtual machine runs, for code that a processor runs."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

VIEWS = ("relax.reshape",)
"""Operators that stay operators: the virtual machine makes views of them, without code and without a copy."""


def processor_pipeline() -> Any:
    """A pass of TVM: the list below, in order."""
    step = relax.transform
    return tvm.transform.Sequential(
        [
            step.LegalizeOps(skip_ops=list(VIEWS)),  # views stay out, else each becomes a kernel that copies
            step.AnnotateTIROpPattern(),  # before fusing, which goes by these patterns
            step.FuseOps(),
            step.FuseTIR(),  # element-wise neighbours become one loop
            step.ToNonDataflow(),
            step.RemovePurityChecking(),
            step.CallTIRRewrite(),  # from here on results are buffers that somebody allocates
            step.StaticPlanBlockMemory(),  # after that: it lets buffers of one function share memory
            step.LowerAllocTensor(),
            step.KillAfterLastUse(),
            step.LowerRuntimeBuiltin(),
            step.ComputePrimValue(),
            step.VMShapeLower(emit_err_ctx=False),  # every size is a number: nothing to say where one differs
            step.AttachGlobalSymbol(),
        ]
    )
