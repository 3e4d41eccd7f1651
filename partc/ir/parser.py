"""Parses the text form whose grammar stands in `partc.ir.text`."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from partc.dims import Dim, Shape, symbols
from partc.ir.graph import (
    Attribute,
    Constant,
    DependencyMap,
    Graph,
    Input,
    ModelInfo,
    Module,
    Node,
    Part,
    PhaseCost,
    State,
    Submodule,
    SubmoduleProfile,
    Value,
    Weight,
)
from partc.ir.lines import Line, Reader
from partc.ir.printer import VERSION
from partc.ir.quantization import Quantization
from partc.ir.types import BY_SHORT
from partc.ir.weights import JOINS, STEPS, Argument, Array, Join, Leaf, Step, WeightExpr

_V = TypeVar("_V", bound=Value)


def parse_module(text: str, *, file: str = "<text>") -> Module:
    """The module that `text` describes; O(size).

    Raises:
        UserError: the text breaks the grammar; the message names file, line and column.
    """
    reader = Reader(text, file)
    _header(reader.next())
    line = reader.next()
    line.expect("model")
    module, values = _parse_body(reader, _info(line))
    while not reader.done:
        _parse_fact(reader, reader.next(), module, values)
    return module


def _header(line: Line) -> None:
    if not line.accept("partc-ir"):
        line.fail("this is not partc IR: its first line is 'partc-ir 1'")
    version = line.integer()
    if version != VERSION:
        line.fail(f"IR version {version} is not {VERSION}; print it again with this partc")


def _info(line: Line) -> ModelInfo:
    data = line.data()
    known = set(ModelInfo.__dataclass_fields__)
    for key in data:
        if key not in known:
            line.fail(f"unknown key {key!r} in the model header; known: {', '.join(sorted(known))}")
    missing = [key for key in ("name", "task") if key not in data]
    if missing:
        line.fail(f"the model header has no {missing[0]!r}")
    fields: dict[str, Any] = {
        key: tuple(item) if isinstance(item, list) else item for key, item in data.items()
    }
    if "quantize" in fields:
        fields["quantize"] = _quantization(line, fields["quantize"])
    return ModelInfo(**fields)


def _quantization(line: Line, data: object) -> Quantization:
    known = Quantization.__dataclass_fields__
    if not isinstance(data, dict) or not data.keys() <= known.keys():
        line.fail(f"'quantize' in the model header is a mapping of {', '.join(known)}")
    return Quantization(**data)


def _parse_body(reader: Reader, info: ModelInfo) -> tuple[Module, dict[str, Value]]:
    graph, values, marks = _graph(reader, reader.next())
    module = Module(info, graph)
    module.candidates = marks.cuts or None
    if marks.starts:
        bounds = [*marks.starts, (-1, len(graph.nodes))]
        module.submodules = [
            Submodule(index, graph.nodes[start:stop]) for (index, start), (_, stop) in pairwise(bounds)
        ]
    return module, values


class _Marks:
    def __init__(self) -> None:
        self.cuts: list[Node] = []
        self.starts: list[tuple[int, int]] = []


def _graph(reader: Reader, line: Line) -> tuple[Graph, dict[str, Value], _Marks]:
    line.expect("graph")
    name = line.name()
    line.expect("opset")
    graph = Graph(name, [], [], [], opset=line.integer())
    line.expect("{")
    values: dict[str, Value] = {}
    marks = _Marks()
    while True:
        line = reader.next()
        if line.accept("}"):
            line.end()
            return graph, values, marks
        _graph_line(line, graph, values, marks)
        line.end()


def _graph_line(line: Line, graph: Graph, values: dict[str, Value], marks: _Marks) -> None:
    if line.accept("input "):
        graph.inputs.append(_define(line, values, Input(*_typed(line))))
    elif line.accept("weight "):
        _define(line, values, _weight(line))
    elif line.accept("const "):
        line.expect("%")
        name = line.name()
        line.expect("=")
        array = _array(line)
        dtype = next(t.short for t in BY_SHORT.values() if t.numpy == array.dtype)
        _define(line, values, Constant(name, dtype, array.shape, array=array))
    elif line.accept("state "):
        _define(line, values, State(*_typed(line)))
    elif line.accept("submodule "):
        marks.starts.append((line.integer(), len(graph.nodes)))
    elif line.accept("output "):
        graph.outputs.extend(_uses(line, values))
    else:
        is_cut = line.accept("cut ")
        graph.nodes.append(_node(line, values))
        marks.cuts.extend(graph.nodes[-1:] if is_cut else ())


def _define(line: Line, values: dict[str, Value], value: _V) -> _V:
    if value.name in values:
        line.fail(f"%{value.name} is defined twice")
    values[value.name] = value
    return value


def _typed(line: Line) -> tuple[str, str | None, Shape | None]:
    line.expect("%")
    name = line.name()
    line.expect(":")
    return (name, *_type(line))


def _type(line: Line) -> tuple[str | None, Shape | None]:
    dtype = None if line.accept("?") else line.take(r"[a-z0-9]+", "an element type")
    if dtype is not None and dtype not in BY_SHORT:
        line.fail(f"unknown element type {dtype!r}; known: {', '.join(BY_SHORT)}")
    line.expect("[")
    if line.accept("?"):
        line.expect("]")
        return dtype, None
    text = line.take(r"[^\]]*", "sizes").strip()
    line.expect("]")
    return dtype, tuple(_dim(line, item.strip()) for item in text.split(",")) if text else ()


def _dim(line: Line, text: str) -> Dim:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        symbols(text)
    except ValueError:
        line.fail(f"not a size: {text!r}")
    return text


def _weight(line: Line) -> Weight:
    line.expect("%")
    name = line.name()
    line.expect("=")
    dtype, shape = _type(line)
    line.expect("from")
    return Weight(name, dtype, shape, source=_expr(line))


def _expr(line: Line) -> WeightExpr:
    expr = _expr_head(line)
    while line.accept("|>"):
        op = line.name()
        if op not in STEPS:
            line.fail(f"unknown transform {op!r}; known: {', '.join(STEPS)}")
        line.expect("(")
        expr = Step(op, _arguments(line), expr)
    return expr


def _expr_head(line: Line) -> WeightExpr:
    if line.peek('"'):
        file = line.string()
        line.expect("#")
        return Leaf(file, line.string())
    op = line.name()
    if op not in JOINS:
        line.fail(f'expected a tensor ("file"#"key") or one of {", ".join(JOINS)}')
    line.expect("(")
    axis = line.integer()
    parts: list[WeightExpr] = []
    while line.accept(","):
        parts.append(_expr(line))
    line.expect(")")
    return Join(op, axis, tuple(parts))


def _arguments(line: Line) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    while not line.accept(")"):
        word = line.take(r"[^,()\s]+", "an argument")
        arguments.append(_number_or_word(word))
        line.accept(",")
    return tuple(arguments)


def _number_or_word(word: str) -> Argument:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _array(line: Line) -> Array:
    dtype, shape = _type(line)
    if dtype is None or shape is None or not all(isinstance(dim, int) for dim in shape):
        line.fail("a constant needs an element type and fixed sizes")
    kind, sizes = BY_SHORT[dtype].numpy, [int(dim) for dim in shape]
    if line.accept("base64"):
        return _raw_array(line, kind, sizes)
    line.expect("[")
    text = line.take(r"[^\]]*", "elements").strip()
    line.expect("]")
    items = [item.strip() for item in text.split(",")] if text else []
    try:
        flat = (
            np.array([item == "true" for item in items], bool)
            if dtype == "bool"
            else np.array(items, dtype=str)
        )
        return (flat if dtype == "bool" else _numbers(flat, kind)).reshape(sizes)
    except ValueError as error:
        line.fail(f"bad constant: {error}")


def _raw_array(line: Line, kind: np.dtype[np.generic], sizes: list[int]) -> Array:
    try:
        return np.frombuffer(base64.b64decode(line.string(), validate=True), kind).reshape(sizes).copy()
    except ValueError as error:
        line.fail(f"bad constant: {error}")


def _numbers(items: Array, kind: np.dtype[np.generic]) -> Array:
    if items.size == 0:
        return np.empty(0, kind)
    if kind.kind in "iu":
        return np.array([int(item) for item in items], kind)
    return np.array([float(item) for item in items], np.float64).astype(kind)


def _uses(line: Line, values: Mapping[str, Value]) -> list[Value]:
    found = [_use(line, values)]
    while line.accept(","):
        found.append(_use(line, values))
    return found


def _use(line: Line, values: Mapping[str, Value]) -> Value:
    line.expect("%")
    name = line.name()
    if name not in values:
        line.fail(f"%{name} is used before it is defined")
    return values[name]


def _node(line: Line, values: dict[str, Value]) -> Node:
    outputs = [Value(*_typed(line))]
    while line.accept(","):
        outputs.append(Value(*_typed(line)))
    line.expect("=")
    op = line.name()
    line.expect("(")
    inputs = _operands(line, values)
    attributes = _attributes(line)
    scope = line.name() if line.accept("@") else ""
    node = Node(op, inputs, outputs, attributes, scope)
    for output in outputs:
        _define(line, values, output)
    return node


def _operands(line: Line, values: dict[str, Value]) -> list[Value | None]:
    inputs: list[Value | None] = []
    while not line.accept(")"):
        inputs.append(None if line.accept("_") else _use(line, values))
        line.accept(",")
    return inputs


def _attributes(line: Line) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    if not line.accept("{"):
        return attributes
    while not line.accept("}"):
        key = line.name()
        line.expect("=")
        attributes[key] = _attribute(line)
        line.accept(",")
    return attributes


def _attribute(line: Line) -> Attribute:
    if line.accept("tensor"):
        return _array(line)
    if line.peek('"'):
        return line.string()
    if line.accept("["):
        items: list[Any] = []
        while not line.accept("]"):
            items.append(_attribute(line))
            line.accept(",")
        return tuple(items)
    word = line.take(r"[-+.\w]+", "a number")
    value = _number_or_word(word)
    if isinstance(value, str):
        line.fail(f"expected a number, a text in quotes or a list, not {word!r}")
    return value


def _parse_fact(reader: Reader, line: Line, module: Module, values: dict[str, Value]) -> None:
    if line.accept("sdm"):
        module.sdm = _map_line(line, module.sdm, values)
    elif line.accept("rdm"):
        module.rdm = _map_line(line, module.rdm, values)
    elif line.accept("profile"):
        line.integer()
        module.profile = [*(module.profile or ()), _profile(line)]
    elif line.accept("plan"):
        module.plan = line.data()
    elif line.accept("part"):
        module.parts = [*(module.parts or ()), _part(reader, line)]
    else:
        line.fail("expected sdm, rdm, profile, plan or part")


def _map_line(line: Line, known: DependencyMap | None, values: Mapping[str, Value]) -> DependencyMap:
    if line.accept("none"):
        return {}
    source = line.integer()
    line.expect("->")
    target = line.integer()
    line.expect(":")
    return {**(known or {}), (source, target): _uses(line, values)}


def _profile(line: Line) -> SubmoduleProfile:
    data = line.data()
    try:
        phases = {name: PhaseCost(**cost) for name, cost in data["phases"].items()}
        return SubmoduleProfile(data["weight_bytes"], data["state_bytes"], phases, data.get("shared", {}))
    except (KeyError, TypeError, AttributeError) as error:
        line.fail(f"not a profile: {error}")


def _part(reader: Reader, line: Line) -> Part:
    device = line.name()
    line.expect("target")
    target = line.name()
    line.expect("{")
    programs: dict[str, str] = {}
    line = reader.next()
    while line.accept("program"):
        phase = line.name()
        programs[phase] = _program(reader)
        line = reader.next()
    graphs: list[Graph] = []
    while not graphs or not line.accept("}"):
        graphs.append(_graph(reader, line)[0])
        line = reader.next()
    line.end()
    return Part(device, graphs, programs, target)


def _program(reader: Reader) -> str:
    lines = []
    while not (line := reader.next()).accept("end"):
        lines.append(line.rest())
    return "\n".join(lines) + "\n"
