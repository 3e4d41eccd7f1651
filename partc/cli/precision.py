"""The line about the precision of weights below a plan: apart from the tables, which need nothing of the compiler."""

from __future__ import annotations

from collections.abc import Mapping

from partc.config.units import format_bytes
from partc.ir.graph import Graph, Module, Weight
from partc.ir.operators import QUANTIZED
from partc.ir.operators.quantized import format_of_node


def precision_line(module: Module) -> str | None:
    """A line such as these; None: no news.

    `weights: int4, 0.81 MiB; 51 KiB keep theirs`, with the largest of these where one is a matrix
    `weights: stored, 580 MiB int4 and 260 MiB int8_blocks; 51 KiB keep theirs`
    """
    if module.info.quantize is None:
        return None
    formats = _formats(module.graph)
    sizes: dict[str, int] = {}
    for weight, name in formats.items():
        sizes[name] = sizes.get(name, 0) + weight.bytes({})
    wanted = module.info.quantize.text
    each = " and ".join(f"{format_bytes(size)} {name}" for name, size in sorted(sizes.items()))
    line = f"weights: {wanted}, {format_bytes(sum(sizes.values())) if {wanted} >= {*sizes} else each}"
    kept = [weight for weight in module.graph.weights() if weight not in formats]
    if not kept:
        return line
    largest = max(kept, key=lambda weight: weight.bytes({}))
    example = f", {_type_of(largest)} {largest.name} the largest" if len(largest.shape or ()) > 1 else ""
    return f"{line}; {format_bytes(sum(weight.bytes({}) for weight in kept))} keep theirs{example}"


def _formats(graph: Graph) -> Mapping[Weight, str]:
    """The format of every weight that is quantised, as data, scales or offsets."""
    return {
        weight: format_of_node(node).name
        for node in graph.nodes
        if node.op in QUANTIZED
        for weight in node.operands
        if isinstance(weight, Weight)
    }


def _type_of(weight: Weight) -> str:
    return f"{weight.dtype}[{', '.join(str(size) for size in weight.shape or ())}]"
