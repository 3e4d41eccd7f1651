"""Sizes in a traced program, made simpler while it is still known what may change and between which bounds.

| in the program | becomes |
|---|---|
| a size that can have one value only, such as `max(0, 1 - sequence)` | that number |
| `arange(past, past + sequence)` | `arange(sequence) + past`, whose size does not depend on the past |
| the number of elements of a tensor, which the exporter does not know | the product of its sizes |
| a size of the same formula as another one before | that one |
"""

from __future__ import annotations

import math
import operator

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node


def simplify_sizes(program: ExportedProgram) -> None:
    """Rewrite the graph of `program` as the table above says; O(nodes²) where there are such ranges, else O(nodes)."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        _replace_single_value(node)
        _replace_range(graph, node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def share_sizes(graph: Graph) -> None:
    """Rewrite the graph as the table above says, but for ranges; O(nodes)."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.sym_numel.default:
            _multiply_sizes(graph, node)
    first: dict[object, Node] = {}
    for node in graph.nodes:
        size = _size(node)
        if size is not None:
            _replace_single_value(node)
            node.replace_all_uses_with(first.setdefault(size.node.expr, node))


def _multiply_sizes(graph: Graph, count: Node) -> None:
    tensor = count.all_input_nodes[0]
    shape = tensor.meta["val"].shape
    number = math.prod(size for size in shape if isinstance(size, int))
    product: Node | int = number
    value: torch.SymInt | int = number
    for axis, size in enumerate(shape):
        if not isinstance(size, int):
            value = value * size
            with graph.inserting_before(count):
                factor = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
                product = graph.call_function(operator.mul, (product, factor))
            factor.meta, product.meta = ({**count.meta, "val": each} for each in (size, value))
    count.replace_all_uses_with(product)  # type: ignore[arg-type]


def _size(value: object) -> torch.SymInt | None:
    """The symbolic size that a node computes."""
    size = value.meta.get("val") if isinstance(value, Node) else None
    return size if isinstance(size, torch.SymInt) else None


def _replace_single_value(node: Node) -> None:
    size = _size(node)
    if size is None:
        return
    bounds = size.node.shape_env.bound_sympy(size.node.expr)
    if bounds.lower == bounds.upper:
        node.replace_all_uses_with(int(bounds.lower))  # type: ignore[arg-type]


def _replace_range(graph: Graph, node: Node) -> None:
    """Give a range that begins at a symbolic size its own size, where some node has that."""
    if getattr(node.target, "overloadpacket", None) is not torch.ops.aten.arange or len(node.args) < 2:
        return
    start, end = _size(node.args[0]), _size(node.args[1])
    step = node.args[2] if len(node.args) > 2 else 1
    if start is None or end is None or step != 1:
        return
    wanted = end.node.expr - start.node.expr
    count = next(
        (other for other in graph.nodes if (size := _size(other)) is not None and size.node.expr == wanted),
        None,
    )
    if count is None:
        return
    with graph.inserting_before(node):
        indices = graph.call_function(torch.ops.aten.arange.default, (count,), dict(node.kwargs))
        shifted = graph.call_function(torch.ops.aten.add.Tensor, (indices, node.args[0]))
    indices.meta.update(node.meta)
    shifted.meta.update(node.meta)
    node.replace_all_uses_with(shifted)
    graph.erase_node(node)
