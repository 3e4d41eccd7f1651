"""The time of a row of a step beside the time in which the step reads its weights: what padding and more steps cost.

A step of n rows takes about `reading · (1 + n · row_cost)`, since the kernels compute while little is left to read.
Measured with one thread, 12 layers of 768 and 22 of 2048, from a step of one row and prompts of 512:

| weights | AVX2 | AVX-512 with VNNI |
| --- | --- | --- |
| float32 | 0.13 | 0.05 |
| 8 bits | 0.26 | 0.06 |
| 4 bits | 0.27-0.40 | 0.22 |

Weights of 16 bits are computed with as those of 32, and are half as many bytes. aarch64 was not measured, and counts as
AVX2.
"""

from __future__ import annotations

from collections.abc import Iterable

from partc.ir.graph import Graph, Weight
from partc.ir.operators import QUANTIZED_GATHER
from partc.ir.weights import Step
from targets.tvm.machine import Machine
from targets.tvm.quantized import stored_bytes

_WIDE, _PLAIN = {4: 0.22, 8: 0.06, 16: 0.10, 32: 0.05}, {4: 0.35, 8: 0.26, 16: 0.26, 32: 0.13}
"""Bits of a weight → its part of `row_cost`, with and without VNNI of 512 bits."""
_ONE_ROW = frozenset({"Gather", QUANTIZED_GATHER.name})
"""Operators that read rows of a weight, and not all of it."""


def row_cost(graphs: Iterable[Graph], machine: Machine) -> float:
    """The time of a row over that of reading the matrices of all graphs; O(nodes)."""
    by_bits = _WIDE if "avx512vnni" in machine.enabled() else _PLAIN
    weights = {
        value
        for graph in graphs
        for node in graph.nodes
        for value in node.operands
        if isinstance(value, Weight) and node.op not in _ONE_ROW and len(value.shape or ()) > 1
    }
    bytes_of = {weight: stored_bytes(weight) for weight in weights}
    read = sum(bytes_of.values())
    return sum(by_bits[_bits(weight)] * count for weight, count in bytes_of.items()) / read if read else 0.0


def _bits(weight: Weight) -> int:
    match weight.source:
        case Step(op="quantize", arguments=(int(bits), *_)):
            return bits
        case Step(op="scales", arguments=(int(bits), *_)):
            return bits
    return {"f16": 16, "bf16": 16}.get(weight.dtype or "", 32)
