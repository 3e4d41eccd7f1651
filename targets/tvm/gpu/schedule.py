"""Lowered kernels divided among the blocks and threads of a GPU.

TVM's own rules for GPUs (`tvm.s_tir.dlight`) choose tiles of products, and reductions over the threads of a block; a
kernel that says it is scheduled stays as it is. What they leave in the memory of the device between two loops of one
kernel becomes a parameter, for which the plan finds a place: a driver allocates nothing while a step runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import dlight
from tvm.tirx import PrimFunc


def gpu_schedules() -> Any:
    """A pass of TVM over kernels, under the target of the device."""
    rules = dlight.gpu
    return tvm.transform.Sequential(
        [
            dlight.ApplyDefaultSchedule(
                rules.Matmul(), _Gemv(), rules.Reduction(), rules.GeneralReduction(), rules.Fallback()
            ),
            tvm.transform.module_pass(_scratch_of_all, opt_level=0, name="ScratchParameters"),
        ]
    )


class _Gemv(dlight.gpu.GEMV):  # type: ignore[misc]
    """The rule of products of a vector, which fails where there is but one number to add up: others do that."""

    def apply(self, func: Any, target: Any, _: bool) -> Any:
        try:
            return super().apply(func, target, _)
        except AssertionError:
            return None


def _scratch_of_all(module: Any, context: Any) -> Any:
    for name, function in module.functions.items():
        if isinstance(function, PrimFunc) and (scratch := _scratch(function)):
            module.update_func(name, _with_parameters(function, scratch))
    return module


def _scratch(function: Any) -> Sequence[Any]:
    """The buffers that a kernel allocates in the memory that all blocks see."""
    block = getattr(function.body, "block", None)
    return [b for b in block.alloc_buffers if b.scope() in ("", "global")] if block is not None else []


def _with_parameters(function: Any, scratch: Sequence[Any]) -> Any:
    """The kernel with these buffers behind its other parameters."""
    root = function.body.block
    rest = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(other) for other in scratch)]
    block = tvm.s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        root.body,
        init=root.init,
        alloc_buffers=rest,
        match_buffers=root.match_buffers,
        annotations=root.annotations,
    )
    realize = tvm.s_tir.SBlockRealize(function.body.iter_values, function.body.predicate, block)
    return tirx.PrimFunc([*function.params, *scratch], realize, function.ret_type, attrs=function.attrs)
