"""Models that take the queries for the last rows of the keys.

That holds for a cache that grows, where they are the rows from `position` on; ours is a buffer of fixed size. The sign
of it is a slice of a table from `buffer - sequence` on: the rows of the queries are taken instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

_END = 2**62
"""A slice that ends behind it ends with its axis."""


class NotAlignedError(Exception):
    """The queries are taken for the last rows of something that is no table."""

    def __init__(self) -> None:
        super().__init__("its own attention takes the queries for the last rows of the cache")


def align_queries(program: ExportedProgram, buffer: int) -> None:
    """Let every such slice take the rows of the queries; O(nodes).

    Raises:
        NotAlignedError: what is sliced has another form than a table `[1, …, rows, …]`.
    """
    graph = program.graph_module.graph
    inputs = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.slice.Tensor and _is_from_the_end(node, buffer):
            _take_rows(graph, node, inputs["position"], inputs["index"], buffer)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _is_from_the_end(node: Node, buffer: int) -> bool:
    start = node.args[2] if len(node.args) > 2 else None
    size = start.meta.get("val") if isinstance(start, Node) else None
    return isinstance(size, torch.SymInt) and str(size.node.expr).startswith(f"{buffer} - ")


def _take_rows(graph: Graph, node: Node, position: Node, index: Node, buffer: int) -> None:
    table, axis, _, end, *steps = (*node.args, _END) if len(node.args) == 3 else node.args
    assert isinstance(table, Node) and isinstance(axis, int)
    shape = table.meta["val"].shape
    axis = axis % len(shape)
    is_table = (
        axis > 0 and all(isinstance(size, int) for size in shape) and all(size == 1 for size in shape[:axis])
    )
    ends_with_keys = isinstance(end, int) and (end == buffer or end >= _END)
    if not (is_table and ends_with_keys and steps in ([], [1])):
        raise NotAlignedError
    aten = torch.ops.aten
    with graph.inserting_before(node):
        rows = _call(graph, aten.add.Tensor, _call(graph, aten.unsqueeze.default, position, 1), index)
        found = table
        for _ in range(axis):
            found = _call(graph, aten.select.int, found, 0, 0)
        found = _call(graph, aten.index.Tensor, found, [rows])
        for _ in range(axis - 1):
            found = _call(graph, aten.unsqueeze.default, found, 1)
    node.replace_all_uses_with(found)
    graph.erase_node(node)


def _call(graph: Graph, target: Any, *arguments: Any) -> Node:
    """A call, with the value that it has on the fake tensors of its arguments."""
    node = graph.call_function(target, arguments)
    node.meta["val"] = target(*map(_value, arguments))
    return node


def _value(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_value(each) for each in argument]
    return argument.meta["val"] if isinstance(argument, Node) else argument
