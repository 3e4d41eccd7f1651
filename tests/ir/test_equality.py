"""Equality of graphs is equality of their texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from partc.ir.equality import same_graph, same_parts
from partc.ir.graph import Constant, Graph, Input, Module, Node, Part, Value, Weight
from partc.ir.text import parse_module, print_module
from partc.ir.weights import Step
from tests.passes.models import decoder


def text(graph: Graph) -> str:
    return print_module(Module(decoder("llama").info, graph))


def test_a_graph_that_was_printed_and_read_is_the_same() -> None:
    module = decoder("llama")
    again = parse_module(print_module(module))
    assert module.graph is not again.graph
    assert same_graph(module.graph, again.graph)


def _weight(graph: Graph) -> Weight:
    return graph.weights()[0]


def _constant(graph: Graph) -> Constant:
    return next(value for value in graph.leaves() if isinstance(value, Constant))


CHANGES: dict[str, Callable[[Graph], object]] = {
    "a name": lambda g: setattr(g.nodes[3].outputs[0], "name", "other"),
    "a type": lambda g: setattr(g.nodes[3].outputs[0], "dtype", "f16"),
    "a shape": lambda g: setattr(g.nodes[3].outputs[0], "shape", (1, 2, 3)),
    "an operator": lambda g: setattr(g.nodes[3], "op", "Neg"),
    "a scope": lambda g: setattr(g.nodes[3], "scope", "elsewhere"),
    "an attribute": lambda g: g.nodes[3].attributes.update(axis=7),
    "an operand": lambda g: g.nodes[3].inputs.append(None),
    "the order": lambda g: g.nodes.reverse(),
    "a node more": lambda g: g.nodes.append(Node("Neg", [g.nodes[-1].outputs[0]], [Value("more")])),
    "an input more": lambda g: g.inputs.append(Input("more", "f32", (1,))),
    "an output more": lambda g: g.outputs.append(g.nodes[0].outputs[0]),
    "the opset": lambda g: setattr(g, "opset", 21),
    "a weight": lambda g: setattr(_weight(g), "source", Step("cast", ("f16",), _weight(g).source)),  # type: ignore[arg-type]
    "a constant": lambda g: setattr(_constant(g), "array", np.array(_constant(g).array) + 1),
    "a state": lambda g: setattr(g.states()[0], "shape", (1, 1, 1, 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_noticed(change: Callable[[Graph], object]) -> None:
    left, right = decoder("llama").graph, decoder("llama").graph
    assert same_graph(left, right)
    change(right)
    assert text(left) != text(right), "the change shows in the text"
    assert not same_graph(left, right)


def test_parts_are_the_same_if_everything_in_them_is() -> None:
    graph = decoder("llama").graph
    part = Part("a", [graph], {}, "null")
    assert same_parts([part], [Part("a", [decoder("llama").graph], {}, "null")])
    assert not same_parts([part], [])
    assert not same_parts([part], [Part("b", [graph], {}, "null")])
    assert not same_parts([part], [Part("a", [graph], {}, "ort")])
    assert not same_parts([part], [Part("a", [graph, graph], {}, "null")])
    assert not same_parts([part], [Part("a", [graph], {}, "null", {"b": {}})])
