"""Graphs are matched by structure: other names are no change, and a change is told where it is."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.config.units import format_ranges
from partc.differences.change import Change, layer_of, place_text
from partc.differences.graphs import compare_graphs, compare_modules
from partc.differences.matching import match_graphs, structure_digest
from partc.differences.plans import compare_plans
from partc.differences.weights import compare_weights
from partc.ir.graph import Graph, Module, Node, Value
from partc.ir.text import parse_module

LAYERS = 6


def _text(layers: int = LAYERS, rename: str = "") -> str:
    """A chain of layers, each a product with its own weight, a sigmoid, and a sum with what came in."""
    weights = "".join(
        f'  weight %w{layer} = f32[4, 4] from "model.safetensors"#"layers.{layer}.w"\n'
        for layer in range(layers)
    )
    body = "".join(
        f"  %{rename}p{layer}: f32[rows, 4] = MatMul(%{rename}x{layer}, %w{layer}) @ layers.{layer}.mlp\n"
        f"  %{rename}s{layer}: f32[rows, 4] = Sigmoid(%{rename}p{layer}) @ layers.{layer}.mlp\n"
        f"  %{rename}x{layer + 1}: f32[rows, 4] = Add(%{rename}x{layer}, %{rename}s{layer}) @ layers.{layer}\n"
        for layer in range(layers)
    )
    return (
        'partc-ir 1\nmodel {"dims": {"rows": 8}, "name": "chain", "task": "graph"}\ngraph chain opset 20 {\n'
        f"  input %data: f32[rows, 4]\n{weights}"
        f"  %{rename}x0: f32[rows, 4] = Neg(%data)\n{body}  output %{rename}x{layers}\n}}\n"
    )


def _graph(layers: int = LAYERS, rename: str = "") -> Graph:
    return parse_module(_text(layers, rename), file="text").graph


def _told(changes: list[Change]) -> list[str]:
    return [change.text for change in changes]


def test_names_do_not_count() -> None:
    one, other = _graph(), _graph(rename="other_")
    assert compare_graphs(one, other) == []
    assert structure_digest(one) == structure_digest(other)
    found = match_graphs(one, other)
    assert [found.pairs[node] for node in one.nodes] == other.nodes


def test_layers_that_are_gone_are_told_as_one() -> None:
    assert _told(compare_graphs(_graph(6), _graph(4))) == [
        "operator removed: MatMul in layers 4-5 · mlp (×2)",
        "operator removed: Sigmoid in layers 4-5 · mlp (×2)",
        "operator removed: Add in layers 4-5 (×2)",
    ]
    assert _told(compare_graphs(_graph(4), _graph(5)))[0] == "operator added: MatMul in layer 4 · mlp"


def test_another_operator_at_the_same_place() -> None:
    other = parse_module(_text().replace("Sigmoid", "Tanh"), file="text").graph
    assert _told(compare_graphs(_graph(), other)) == [
        "operator replaced: Sigmoid in layers 0-5 · mlp (×6): Sigmoid → Tanh"
    ]


def test_an_operand_that_is_another_one() -> None:
    text = _text().replace('#"layers.2.w"', '#"layers.2.other"')
    (change,) = compare_graphs(_graph(), parse_module(text, file="text").graph)
    assert change.subject == "operand 1 of MatMul in layer 2 · mlp"
    assert (change.before or "").startswith('weight "model.safetensors"#"layers.*.w"')


def test_sizes_and_types_are_told_where_they_begin() -> None:
    wider = parse_module(_text().replace("f32[rows, 4]", "f32[rows, 8]"), file="text").graph
    assert _told(compare_graphs(_graph(), wider)) == [
        "end of the graph: input data: f32[rows, 4] → f32[rows, 8]",
        "end of the graph: output 0: f32[rows, 4] → f32[rows, 8]",
        "size changed: result of Neg in x0: [rows, 4] → [rows, 8]",
    ]
    half = parse_module(_text().replace("f32[rows, 4] = Sig", "f16[rows, 4] = Sig"), file="text").graph
    assert _told(compare_graphs(_graph(), half)) == [
        "type changed: result of Sigmoid in layers 0-5 · mlp (×6): f32 → f16"
    ]


def test_facts_and_cuts() -> None:
    one, other = (
        parse_module(_text(), file="text"),
        parse_module(_text().replace('"rows": 8', '"rows": 9'), file="text"),
    )
    one.candidates = [one.graph.nodes[4], one.graph.nodes[7]]
    other.candidates = [other.graph.nodes[4], other.graph.nodes[10]]
    assert _told(compare_modules(one, other)) == [
        "model fact: dims: {'rows': 8} → {'rows': 9}",
        "cut candidate: MatMul in layer 2 · mlp: yes → no",
        "cut candidate: MatMul in layer 3 · mlp: no → yes",
    ]


@given(st.integers(0, 3 * LAYERS), st.integers(0, 2**32))
def test_a_node_that_is_put_in_is_the_only_change(place: int, seed: int) -> None:
    before, after = _graph(), _graph(rename="z")
    node = after.nodes[place]
    value = node.outputs[0]
    made = Value("new", value.dtype, value.shape)
    after.replace_uses({value: made})
    after.nodes.insert(place + 1, Node("Relu", [value], [made], scope=node.scope))
    _shuffled(after, random.Random(seed))
    added = compare_graphs(before, after)
    assert [(change.kind, change.count) for change in added] == [("operator added", 1)]
    assert added[0].subject.startswith("Relu in ")
    assert [change.kind for change in compare_graphs(after, before)] == ["operator removed"]


def _shuffled(graph: Graph, draw: random.Random) -> None:
    """Another topological order of the same graph."""
    waiting, made, order = list(graph.nodes), set(), []
    while waiting:
        ready = [node for node in waiting if all(v.producer is None or v in made for v in node.operands)]
        node = draw.choice(ready)
        waiting.remove(node)
        made.update(node.outputs)
        order.append(node)
    graph.nodes = order


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2, 5"), ([4, 4, 1], "1, 4")]
)
def test_format_ranges(numbers: list[int], text: str) -> None:
    assert format_ranges(numbers) == text


def test_places() -> None:
    assert layer_of("model.layers.3.mlp") == ("model.layers.*.mlp", 3)
    assert layer_of("lm_head") == ("lm_head", None)
    assert layer_of("block1.conv2d") == ("block1.conv2d", None)
    assert place_text("model.layers.*", [2]) == "layer 2"
    assert place_text("", []) == "the whole graph"


def test_plans_of_one_device_have_no_messages() -> None:
    """Empty lists are not written."""
    alone = {
        "objective": "latency",
        "method": "m",
        "stages": [],
        "memory": {"a": {"needed": 5, "available": 9}},
    }
    more = {**alone, "memory": {"a": {"needed": 6, "available": 9}}}
    assert [(change.kind, change.before, change.after) for change in compare_plans(alone, more)] == [
        ("memory needed", "5 B", "6 B")
    ]


def test_weights_by_name_and_content() -> None:
    before = {"a": "float32[2] 1", "b": "float32[2] 2", "c": "float32[2] 3", "d": "float32[2] 4"}
    after = {"a": "float32[2] 1", "b": "float32[2] 5", "e": "float32[2] 3", "f": "float32[2] 6"}
    assert [change.text for change in compare_weights(before, after)] == [
        "weight changed: b: float32[2] 2 → float32[2] 5",
        "weight renamed: c: c → e",
        "weight removed: d: was float32[2] 4",
        "weight added: f: float32[2] 6",
    ]


def _small(*lines: str) -> str:
    """A graph of these lines, which ends in %y."""
    head = 'partc-ir 1\nmodel {"dims": {}, "name": "g", "task": "graph"}\ngraph g opset 24 {\n'
    return head + "".join(f"  {line}\n" for line in (*lines, "output %y")) + "}\n"


def test_constants_that_look_alike_are_told_by_the_first_element_that_differs() -> None:
    text = _small(
        "input %x: f32[8]", "const %c = f32[8] [1, 2, 3, 4, 5, 6, 7, 8]", "%y: f32[8] = Add(%x, %c)"
    )
    one, other = parse_module(text), parse_module(text.replace("7, 8]", "7, 9]").replace("%y", "%z"))
    assert [change.text for change in compare_modules(one, other)] == [
        "end of the graph: output y: was f32[8]",
        "end of the graph: output z: f32[8]",
        "operand changed: operand 1 of Add in y: constant f32[8] at [7]: 8.0 → constant f32[8] at [7]: 9.0",
    ]


def test_a_checkpoint_in_other_shards_is_the_same() -> None:
    weight = 'weight %w = f32[8, 8] from "model.safetensors"#"w"'
    text = _small("input %x: f32[8, 8]", weight, "%y: f32[8, 8] = MatMul(%x, %w)")
    sharded = text.replace("model.safetensors", "model-00001-of-00002.safetensors")
    assert compare_modules(parse_module(text), parse_module(sharded)) == []
    assert compare_modules(parse_module(text), parse_module(text.replace('#"w"', '#"v"')))


def test_an_attribute_that_differs_behind_what_is_shown() -> None:
    def module(last: int) -> Module:
        found = parse_module(_small("input %x: f32[8]", "%y: f32[8] = Relu(%x)"))
        found.graph.nodes[0].attributes["body"] = np.array([1, 2, 3, 4, 5, 6, 7, last], np.uint8)
        return found

    (change,) = compare_modules(module(8), module(9))
    assert change.text == (
        "attribute changed: body of Relu in y: uint8[8] [1, 2, 3, 4, 5, 6, …] with 8 at [7]"
        " → uint8[8] [1, 2, 3, 4, 5, 6, …] with 9 at [7]"
    )
