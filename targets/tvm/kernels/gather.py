"""`tvm.GatherColumns`: rows of a table of embeddings whose transpose lies in panels (`layout.py`).

A row of K numbers is read from K cache lines, one number of each: 64K bytes moved for 4K that are wanted. Beside the
product with the same weight, which reads all of it, that is nothing: one line in N / PANEL.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.errors import InternalError
from partc.ir.graph import Node
from targets.tvm.builder import Expr, FunctionBuilder, Kernel, tensor_type
from targets.tvm.kernels.vector import place_within
from targets.tvm.layout import PANEL
from targets.tvm.operators import input_shape, shape_of
from targets.tvm.operators.indexing import counted_from_front
from targets.tvm.operators.reading import dtype_of


def gather_columns(
    b: FunctionBuilder, node: Node, operands: list[Expr], make: Kernel | None = None, *more: object
) -> Expr:
    """Weight [K, N] in panels, numbers of columns → [*numbers, K], by the kernel `make`, which takes `more` besides."""
    if not b.is_packed(node.inputs[0]):
        raise InternalError("its weight is not packed", where=node.place)
    depth, columns = input_shape(node, 0)
    many = math.prod(input_shape(node, 1))
    places = b.emit(relax.op.astype(counted_from_front(b, node, 1, operands[1], columns), "int64"))
    flat = b.emit(relax.op.reshape(places, (many,)))
    result = tensor_type((many, depth), node.operand(0).dtype)
    sizes = (many, depth, columns, dtype_of(node), *more)
    found = b.call(make or columns_of_panels, [operands[0], flat], result, *sizes)
    return relax.op.reshape(found, shape_of(node))


def columns_of_panels(R: int, K: int, N: int, stored: str) -> Any:
    """y[r, k] = w[places[r] // PANEL, k, places[r] % PANEL]."""
    P = math.ceil(N / PANEL)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        w: T.Buffer((P, K, PANEL), stored),
        places: T.Buffer((R,), "int64"),
        y: T.Buffer((R, K), stored),
    ):
        for r in range(R):
            place: T.let = place_within(places[r], N - 1)
            for k in range(K):
                y[r, k] = w[place // PANEL, k, place % PANEL]

    return kernel
