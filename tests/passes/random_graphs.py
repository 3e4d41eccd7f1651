"""Random graphs, and what they compute written as nested tuples, so that two can be compared."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from partc.ir.graph import Graph, Input, Module, Node, Value, Weight
from tests.passes.models import graph_text

Term = tuple[object, ...] | str


@st.composite
def modules(draw: st.DrawFn, most: int = 14) -> str:
    """The text of a sized graph of up to `most` nodes over two inputs, a step input and two weights."""
    names = ["x", "y", "position", "w", "v"]
    lines = [
        "input %x: f32[4, 4]",
        "input %y: f32[4, 4]",
        "input %position: f32[4, 4]",
        'weight %w = f32[4, 4] from "m.safetensors"#"w"',
        'weight %v = f32[4, 4] from "m.safetensors"#"v"',
    ]
    count = draw(st.integers(1, most))
    for number in range(count):
        # Mostly recent values, so that the graphs are deep as models are.
        recent = names[-4:] if draw(st.booleans()) else names
        operands = draw(st.lists(st.sampled_from(recent), min_size=1, max_size=3))
        lines.append(f"%n{number}: f32[4, 4] = Op{number}({', '.join(f'%{name}' for name in operands)})")
        names.append(f"n{number}")
    made = [f"n{number}" for number in range(count)]
    outputs = draw(st.lists(st.sampled_from([*made, "x"]), min_size=0, max_size=2, unique=True))
    ends = dict.fromkeys([*(name for name in outputs if name != made[-1]), made[-1]])
    lines.append(f"output {', '.join(f'%{name}' for name in ends)}")
    return graph_text(lines, task="graph")


def compute(graph: Graph, given: Mapping[str, Term]) -> dict[str, Term]:
    """The outputs of `graph` as terms over `given` and the names of leaves."""
    known: dict[Value, Term] = {value: given[value.name] for value in graph.inputs}

    def term(value: Value) -> Term:
        if isinstance(value, Weight):
            return value.name
        return known[value]

    for node in graph.nodes:
        operands = tuple("_" if value is None else term(value) for value in node.inputs)
        known.update((output, (node.op, place, operands)) for place, output in enumerate(node.outputs))
    return {value.name: term(value) for value in graph.outputs}


def request(module: Module) -> dict[str, Term]:
    """Every input of the whole graph, standing for itself."""
    return {value.name: f"input {value.name}" for value in module.graph.inputs}


def edges(graph: Graph) -> list[tuple[Node | Input, Value, Node]]:
    """(u, value, v) for every edge of the graph, graph inputs taken as nodes."""
    found: list[tuple[Node | Input, Value, Node]] = []
    for node in graph.nodes:
        for value in node.operands:
            if value.producer is not None:
                found.append((value.producer, value, node))
            elif isinstance(value, Input):
                found.append((value, value, node))
    return found
