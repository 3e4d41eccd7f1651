"""Nodes with graphs inside (`If`, `Loop`, `Scan`), which stay whole: one opaque node each, of the domain `whole`.

`whole.If` has the operands of the `If`, and behind them every value from outside that its graphs read. Its attributes
are those of the `If`; in place of each graph stands the graph's message as bytes, in which the values from outside are
called `outside.0`, `outside.1`, …. So passes see what such a node reads, may rename it, and cannot cut through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, numpy_helper

DOMAIN = "whole"
CONTROL_FLOW = ("If", "Loop", "Scan")
_OWN = "own_operands"
"""Attribute: the number of operands that the node itself has."""
_GRAPH = "graph."
"""Begin of the names of attributes that hold a graph."""


def is_whole(op: str) -> bool:
    """Whether nodes with this operator have graphs inside."""
    return op.startswith(f"{DOMAIN}.")


def graphs_of(node: NodeProto) -> list[tuple[str, GraphProto]]:
    """The graphs inside a node, with the names of their attributes."""
    return [(attribute.name, attribute.g) for attribute in node.attribute if attribute.HasField("g")]


def defined_in(graph: GraphProto) -> list[str]:
    """The names of inputs, tensors and results of nodes of a graph, not of those inside of nodes."""
    made = [name for node in graph.node for name in node.output if name]
    return [*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer), *made]


def read_outside(graph: GraphProto) -> list[str]:
    """The values that a graph reads and does not make, in the order of their first use."""
    own, found = set(defined_in(graph)), dict[str, None]()
    for node in graph.node:
        inner = (name for _, body in graphs_of(node) for name in read_outside(body))
        found.update(dict.fromkeys(name for name in (*node.input, *inner) if name and name not in own))
    found.update(dict.fromkeys(value.name for value in graph.output if value.name not in own))
    return list(found)


def rename(graph: GraphProto, new: Callable[[str], str]) -> None:
    """Give every value that occurs in a graph, and in graphs inside of it, the name that `new` makes of its own."""
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new(value.name)
    for node in graph.node:
        node.input[:] = [new(name) if name else "" for name in node.input]
        node.output[:] = [new(name) if name else "" for name in node.output]
        for _, body in graphs_of(node):
            rename(body, new)


def tensors_in(graph: GraphProto, place: str = "") -> Iterator[tuple[str, onnx.TensorProto]]:
    """The tensors of a graph and of graphs inside of it, each with an address that no other one of the file has.

    It is the name for a tensor of the file's own graph; inside, `RESULT/then_branch/NAME`, by the node's first result.
    """
    for tensor in graph.initializer:
        yield place + tensor.name, tensor
    for node in graph.node:
        for name, body in graphs_of(node):
            yield from tensors_in(body, f"{place}{node.output[0]}/{name}/")


def enclose(model: onnx.ModelProto) -> None:
    """Make each node with graphs inside an opaque one; tensors inside become tensors of the model."""
    for node in model.graph.node:
        if bodies := graphs_of(node):
            _enclose(node, bodies, model.graph)
    if any(node.domain == DOMAIN for node in model.graph.node):
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))


def _enclose(node: NodeProto, bodies: Sequence[tuple[str, GraphProto]], outer: GraphProto) -> None:
    for name, body in bodies:
        prefix = f"{node.output[0]}/{name}/"
        own = set(_all_defined(body))
        rename(body, lambda value, own=own, prefix=prefix: prefix + value if value in own else value)  # type: ignore[misc]
        _lift_tensors(body, outer)
    outside = list(dict.fromkeys(value for _, body in bodies for value in read_outside(body)))
    places = {name: f"outside.{index}" for index, name in enumerate(outside)}
    kept = [attribute for attribute in node.attribute if not attribute.HasField("g")]
    packed = [onnx.helper.make_attribute(_OWN, len(node.input))]
    for name, body in bodies:
        rename(body, lambda value: places.get(value, value))
        raw = np.frombuffer(body.SerializeToString(deterministic=True), np.uint8)
        packed.append(onnx.helper.make_attribute(f"{_GRAPH}{name}", numpy_helper.from_array(raw)))
    attributes = [AttributeProto.FromString(item.SerializeToString()) for item in (*kept, *packed)]
    del node.attribute[:]
    node.attribute.extend(attributes)
    node.input.extend(outside)
    node.domain = DOMAIN


def _all_defined(graph: GraphProto) -> Iterator[str]:
    yield from defined_in(graph)
    for node in graph.node:
        for _, body in graphs_of(node):
            yield from _all_defined(body)


def _lift_tensors(graph: GraphProto, outer: GraphProto) -> None:
    outer.initializer.extend(graph.initializer)
    del graph.initializer[:]
    for node in graph.node:
        for _, body in graphs_of(node):
            _lift_tensors(body, outer)


def opened(node: NodeProto) -> NodeProto:
    """The node of ONNX that an opaque one stands for; names of values are those that it reads now."""
    own = next(attribute.i for attribute in node.attribute if attribute.name == _OWN)
    places = {f"outside.{index}": name for index, name in enumerate(node.input[own:])}
    result = onnx.helper.make_node(node.op_type, node.input[:own], node.output, name=node.name)
    for attribute in node.attribute:
        if attribute.name.startswith(_GRAPH):
            body = GraphProto.FromString(numpy_helper.to_array(attribute.t).tobytes())
            rename(body, lambda value: places.get(value, value))
            name = attribute.name.removeprefix(_GRAPH)
            result.attribute.append(onnx.helper.make_attribute(name, body))
        elif attribute.name != _OWN:
            result.attribute.append(attribute)
    return result


def open_all(model: onnx.ModelProto) -> None:
    """Undo `enclose`, but for tensors, which stay those of the model."""
    for node in model.graph.node:
        if node.domain == DOMAIN:
            node.CopyFrom(opened(node))
    kept = [entry for entry in model.opset_import if entry.domain != DOMAIN]
    copies = [onnx.OperatorSetIdProto.FromString(entry.SerializeToString()) for entry in kept]
    del model.opset_import[:]
    model.opset_import.extend(copies)
