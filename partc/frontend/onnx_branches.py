"""`If` nodes whose condition is known: the branch that is taken stands in their place.

Exporters write such nodes where a script asks for the rank of a tensor, or for a rate that an application gives as an
input. Sizes and inputs that model.yaml fixes make the condition a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain

import onnx
from onnx import GraphProto, NodeProto

from partc.errors import UserError
from partc.frontend.onnx_import import import_onnx
from partc.ir.graph import ModelInfo
from partc.ir.sizes import SizeInference
from partc.ir.whole import defined_in, enclose, graphs_of, rename

_MOST_ROUNDS = 200
"""Each round settles all conditions that are known; a condition may need the result of a node before it."""


def settle_branches(model: onnx.ModelProto, limits: Mapping[str, int]) -> None:
    """Replace each `If` whose condition follows from constants and sizes; O(nodes) a round.

    `limits`: the largest value of every symbol among the sizes of inputs.
    """
    for _ in range(_MOST_ROUNDS):
        branches = [node for node in model.graph.node if node.op_type == "If"]
        known = _known_conditions(model, branches, limits) if branches else {}
        if not known:
            return
        nodes: list[NodeProto] = []
        counts = Counter(_defined(model.graph))
        for node in model.graph.node:
            key = node.output[0]
            nodes += _chosen(node, known[key], model.graph, counts) if key in known else [node]
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)


def _known_conditions(
    model: onnx.ModelProto, branches: list[NodeProto], limits: Mapping[str, int]
) -> dict[str, bool]:
    """First output of an `If` → its condition, where that is known."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    enclose(copy)
    conditions = {node.output[0]: node.input[0] for node in branches}
    try:
        graph = import_onnx(copy, lambda name: None)
    except UserError:  # the import itself says so, once nothing can be settled any more
        return {}
    found = SizeInference(graph, ModelInfo("branches", "graph", dims=limits)).infer(graph)
    values = {value.name: value for value in graph.values()}
    constants = {key: found.constant(values[name]) for key, name in conditions.items() if name in values}
    return {
        key: bool(array.reshape(-1)[0])
        for key, array in constants.items()
        if array is not None and array.size
    }


def _defined(graph: GraphProto) -> list[str]:
    """The names of all values, those inside of nodes too."""
    inner = (_defined(body) for node in graph.node for _, body in graphs_of(node))
    return [*defined_in(graph), *chain.from_iterable(inner)]


def _chosen(node: NodeProto, condition: bool, outer: GraphProto, counts: Counter[str]) -> list[NodeProto]:
    """The nodes of the branch that is taken, which make the outputs of `node`; its tensors go to `outer`.

    A value keeps its name where no other one has it.
    """
    bodies = dict(graphs_of(node))
    body = GraphProto()
    body.CopyFrom(bodies["then_branch" if condition else "else_branch"])
    own = defined_in(body)
    stored = {tensor.name for tensor in body.initializer}
    names = {name: f"{node.output[0]}/{name}" for name in own if counts[name] > 1}
    results = [value.name for value in body.output]
    copies: list[tuple[str, str]] = []
    for name, output in zip(results, node.output, strict=True):
        if not output:
            continue
        if name in own and name not in stored and results.count(name) == 1:
            names[name] = output
        else:
            copies.append((name, output))
    rename(body, lambda name: names.get(name, name))
    outer.initializer.extend(body.initializer)
    made = [onnx.helper.make_node("Identity", [names.get(name, name)], [output]) for name, output in copies]
    return [*body.node, *made]
