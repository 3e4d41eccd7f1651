"""Models that ask their cache how long it is, instead of taking positions."""

from __future__ import annotations

import numpy as np

from partc.ir.graph import Constant, Graph, Input, Node, Value

PAST = "past"
"""The graph input whose size is the number of valid rows of the caches, if a model asks for it."""


def replace_past(graph: Graph) -> bool:
    """Compute the length of the past from the step input `position`, and drop the input `past`; O(nodes).

    Such a model has one position for all sequences of a batch, so the runner must be told: True if it is so.
    """
    past = next((value for value in graph.inputs if value.name == PAST), None)
    graph.inputs = [value for value in graph.inputs if value.name != PAST]
    readers = graph.consumers().get(past, []) if past else []
    if not readers:
        return False
    position = next(value for value in graph.inputs if value.name == "position")
    longest = _longest(position)
    sizes = {node.outputs[0]: longest.outputs[0] for node in readers}
    graph.nodes = [longest, *(node for node in graph.nodes if node not in readers)]
    graph.replace_uses(sizes)
    return True


def _longest(position: Input) -> Node:
    """The largest position of the batch as i64[1], in the place of `Shape(past)`."""
    axes = Constant("past.axes", "i64", (1,), array=np.zeros(1, np.int64))
    return Node(
        "ReduceMax", [position, axes], [Value("past.length", "i64", (1,))], {"keepdims": 1}, scope="past"
    )
