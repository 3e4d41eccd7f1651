"""Every operator that the target knows, in Relax: correct on every machine, fast where Relax is.

Shapes are numbers (`specialise.py`), so that operands which say how to reshape, expand or slice are constants, and the
shape of the result, which the IR knows, says it all. `kernels/` replaces the ones that matter on a processor.

| file | operators |
| --- | --- |
| `elementwise.py` | element by element: arithmetic, comparisons, activations, casts |
| `shapes.py` | elements moved: reshape, transpose, slice, concat, pad |
| `indexing.py` | places that are computed: gather, scatter, arg max |
| `scans.py` | top k, running sums |
| `reductions.py` | sums over axes, softmax, norms |
| `products.py` | matrix products, convolutions, pools |
| `rotary.py` | rotary position embedding |
| `reading.py` | none: readers of a node's sizes, types, attributes and constants |
| `attention.py` | attention in every form, caches, and the rows of caches in 8 bits |
"""

from __future__ import annotations

from collections.abc import Mapping

from targets.tvm.builder import Emitter
from targets.tvm.operators.attention import EMITTERS
from targets.tvm.operators.elementwise import ELEMENTWISE
from targets.tvm.operators.indexing import INDEXING
from targets.tvm.operators.products import PRODUCTS
from targets.tvm.operators.reading import input_shape, shape_of
from targets.tvm.operators.reductions import REDUCTIONS
from targets.tvm.operators.rotary import ROTARY
from targets.tvm.operators.scans import SCANS
from targets.tvm.operators.shapes import SHAPES

OPERATORS: Mapping[str, Emitter] = {
    **ELEMENTWISE,
    **SHAPES,
    **INDEXING,
    **SCANS,
    **REDUCTIONS,
    **PRODUCTS,
    **ROTARY,
    **EMITTERS,
}
"""Operator → what writes it."""

__all__ = ["OPERATORS", "input_shape", "shape_of"]
