"""A Relax module to code for a GPU and the plan that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partc.format.kernel_plan import KernelPlan, kernels_digest
from targets.tvm.gpu.languages import LANGUAGES
from targets.tvm.gpu.launches import split
from targets.tvm.gpu.schedule import gpu_schedules
from targets.tvm.kernel_plan import plan_of
from targets.tvm.machine import Machine
from targets.tvm.pipeline import processor_pipeline
from targets.tvm.toolchain import Toolchain

ALIGNMENT = 512
"""Bytes that tensors of the arena are aligned to: no OpenCL asks for more of the part of a buffer."""


def build_gpu(
    module: Any, functions: Sequence[str], machine: Machine, tools: Toolchain, folder: Path
) -> KernelPlan:
    """Write the code of the kernels of `module` into `folder`; the plan of `functions` is returned.

    Raises:
        UserError: nvcc failed; says what it printed. Or there is no room for scratch files.
        InternalError: a function does what no plan can say.
    """
    target, language = machine.target(), LANGUAGES[machine.provider]
    with target:
        lowered = gpu_schedules()(processor_pipeline()(module))
    plan, kernels = plan_of(lowered, functions, ALIGNMENT)
    launches, device = split(kernels, target)
    plan = plan.with_launches(launches)
    content = language.code(device, kernels_digest(plan.kernels, launches), machine, tools)
    (folder / language.file).write_bytes(content)
    return plan
