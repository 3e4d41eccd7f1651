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
from tvm.ir import Range
from tvm.s_tir import dlight
from tvm.tirx import PrimFunc

_LINE = "line"
"""The name of the block of a scan."""


def gpu_schedules() -> Any:
    """A pass of TVM over kernels, under the target of the device."""
    rules = dlight.gpu
    return tvm.transform.Sequential(
        [
            tvm.transform.module_pass(_lines_of_all, opt_level=0, name="LinesToBlocks"),
            dlight.ApplyDefaultSchedule(
                rules.Matmul(), rules.GEMV(), rules.Reduction(), rules.GeneralReduction(), rules.Fallback()
            ),
            tvm.transform.module_pass(_scratch_of_all, opt_level=0, name="ScratchParameters"),
        ]
    )


def _lines_of_all(module: Any, context: Any) -> Any:
    for name, function in module.functions.items():
        if isinstance(function, PrimFunc) and (bound := _with_lines_bound(function)) is not None:
            module.update_func(name, bound)
    return module


def _with_lines_bound(function: Any) -> Any:
    """A scan (`targets.tvm.operators.scans`) with a thread for each line; None: it is none.

    A line reads what it has written, which TVM's rules do not take for independent of other lines.
    """
    root = getattr(function.body, "block", None)
    outer = root.body if root is not None else None
    inner = outer.body if isinstance(outer, tirx.For) else None
    line = inner.body.block if isinstance(inner, tirx.For) and hasattr(inner.body, "block") else None
    if line is None or line.name_hint != _LINE:
        return None
    body = _bound(outer, "blockIdx.x", _bound(inner, "blockIdx.y", inner.body))
    return _with_body(function, root, body, root.alloc_buffers).with_attr("tirx.is_scheduled", True)


def _bound(loop: Any, thread: str, body: Any) -> Any:
    axis = tirx.IterVar(Range(0, loop.extent), loop.loop_var.name, tirx.IterVar.ThreadIndex, thread)
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.THREAD_BINDING, body, axis)


def _scratch_of_all(module: Any, context: Any) -> Any:
    for name, function in module.functions.items():
        if isinstance(function, PrimFunc) and (scratch := _scratch(function)):
            module.update_func(name, _with_parameters(function, scratch))
    return module


def _scratch(function: Any) -> Sequence[Any]:
    """What a kernel allocates in the memory that all blocks see."""
    block = getattr(function.body, "block", None)
    return [b for b in block.alloc_buffers if b.scope() in ("", "global")] if block is not None else []


def _with_parameters(function: Any, scratch: Sequence[Any]) -> Any:
    """The kernel with these buffers behind its other parameters."""
    root = function.body.block
    rest = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(other) for other in scratch)]
    return _with_body(function, root, root.body, rest, scratch)


def _with_body(
    function: Any, root: Any, body: Any, allocated: Sequence[Any], parameters: Sequence[Any] = ()
) -> Any:
    """The kernel with another body of its outermost block, and more parameters."""
    block = tvm.s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        body,
        init=root.init,
        alloc_buffers=allocated,
        match_buffers=root.match_buffers,
        annotations=root.annotations,
    )
    realize = tvm.s_tir.SBlockRealize(function.body.iter_values, function.body.predicate, block)
    return tirx.PrimFunc([*function.params, *parameters], realize, function.ret_type, attrs=function.attrs)
