"""The graph as networkx sees it: nodes are operations, edges are activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx

from partc.ir.graph import Graph, Node

if TYPE_CHECKING:
    Digraph = nx.DiGraph[Node]
else:
    Digraph = nx.DiGraph


def view(graph: Graph) -> Digraph:
    """A directed graph over the nodes of `graph`; an edge lists the values that it carries as `values`.

    Weights, constants, states and graph inputs are no nodes (LinguaLinked 3.2.1 counts operations), and
    several values between the same two nodes are one edge, so degrees count distinct neighbours; O(edges).
    """
    result: Digraph = nx.DiGraph()
    result.add_nodes_from(graph.nodes)
    for node in graph.nodes:
        for value in node.operands:
            if value.producer is None:
                continue
            if result.has_edge(value.producer, node):
                result.edges[value.producer, node]["values"].append(value)
            else:
                result.add_edge(value.producer, node, values=[value])
    return result
