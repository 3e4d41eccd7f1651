"""Activations that stand alone or times something; those beside a gated product are computed by it (`matmul.py`).

Moves 8 bytes a number, 12 with a factor, does some 20 to 30 operations on it: a call of the C library for each would
take 4 to 19 ns.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Expr, FunctionBuilder, tensor_type
from targets.tvm.kernels.vector import ACTIVATIONS, loop_of
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import decimal, dtype_of, text

LANES = 16
GATED = "tvm.Gated"
"""`(x, y)` of one shape → activation(x) · y."""
WORK = 25
"""Operations of a number, for the choice between one thread and all."""


def activation_of(node: Node) -> str | None:
    """The name in `ACTIVATIONS` of what a node does; None: it does something else."""
    if node.op == "Swish":
        return "swish" if decimal(node, "alpha", 1.0) == 1.0 else None
    if node.op == "Gelu":
        return "gelu_tanh" if text(node, "approximate", "none") == "tanh" else "gelu"
    return None


def fits(node: Node) -> bool:
    """Whether the kernel does an activation: of float32, not of a few numbers."""
    return dtype_of(node) == "float32" and math.prod(input_shape(node)) >= LANES


def activation(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`Gelu` and `Swish` of float32."""
    name, count = activation_of(node), math.prod(input_shape(node))
    if name is None or not fits(node):
        return OPERATORS[node.op](b, node, operands)
    flat = b.emit(relax.op.reshape(operands[0], (count,)))
    found = b.call(activate, [flat], tensor_type((count,), "f32"), count, name)
    return relax.op.reshape(found, shape_of(node))


def gated(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`tvm.Gated`, which `fuse.py` writes."""
    count = math.prod(input_shape(node))
    flat = [b.emit(relax.op.reshape(one, (count,))) for one in operands]
    found = b.call(activate_times, flat, tensor_type((count,), "f32"), count, text(node, "activation", ""))
    return relax.op.reshape(found, shape_of(node))


def activate(N: int, name: str) -> Any:
    """A thread takes runs of 16 numbers; the last run reaches back over the one before."""
    loop, function = loop_of(WORK * N), ACTIVATIONS[name]

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
        for run in loop(-(-N // LANES)):
            at: T.let = T.min(run * LANES, N - LANES)
            for lane in T.vectorized(LANES):
                y[at + lane] = function(x[at + lane])

    return kernel


def activate_times(N: int, name: str) -> Any:
    """The same, times the number of another tensor at its place."""
    loop, function = loop_of(WORK * N), ACTIVATIONS[name]

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((N,), "float32"), z: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
        for run in loop(-(-N // LANES)):
            at: T.let = T.min(run * LANES, N - LANES)
            for lane in T.vectorized(LANES):
                y[at + lane] = function(x[at + lane]) * z[at + lane]

    return kernel
