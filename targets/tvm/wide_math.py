"""Functions of the C library in double precision: the same float32 whichever library a runner is linked with.

A kernel that TVM makes of an operator calls `sinf`, `cosf`, `expf`, `logf` or `powf` of the process. Those of glibc,
musl and Android differ in the last bit, so that rings of unlike runners computed unlike rotations, and rounded
activations of int4 models made whole steps of such a bit (a tiny Llama in int4: 19 of 64 tokens equal between the two
runners).
Results in double precision differ too, but 29 bits further down: rounded to float32 they are the same, but for one in
some hundred million. The kernels of `targets.tvm.kernels` call no function of the library: theirs are arithmetic, for
numbers that are known to be small.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import PrimFunc
from tvm_ffi import structural_map

_FUNCTIONS = {
    f"tirx.{name}": getattr(tirx, name)
    for name in ("exp", "sigmoid", "tanh", "erf", "log", "sin", "cos", "tan", "pow", "exp2", "log10")
}
_NARROW, _WIDE = "float32", "float64"


def widen_math() -> Any:
    """A pass of TVM over the kernels that it wrote itself."""
    return tvm.transform.module_pass(_widen_all, opt_level=0, name="WidenMath")


def _widen_all(module: Any, context: Any) -> Any:
    for name, function in module.functions.items():
        if isinstance(function, PrimFunc) and "op_pattern" not in (function.attrs or {}):
            body = structural_map(function.body, [(Call, _call)])
            if not body.same_as(function.body):
                module.update_func(name, function.with_body(body))
    return module


def _call(call: Any) -> Any:
    name = getattr(call.op, "name", "")
    if str(call.ty) != _NARROW:
        return call
    if (function := _FUNCTIONS.get(name)) is None:
        return call
    return tirx.Cast(_NARROW, function(*(tirx.Cast(_WIDE, operand) for operand in call.args)))
