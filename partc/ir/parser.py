"""Parses the text form whose grammar stands in `partc.ir.text`: modules, graphs and the lines that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from msgspec import ValidationError

from partc.errors import UserError
from partc.format.dims import Shape
from partc.format.plan import PlanFile
from partc.format.program import Program, parse_program
from partc.format.state_kinds import KINDS, USUAL
from partc.ir.graph import (
    Constant,
    DependencyMap,
    Graph,
    Input,
    ModelInfo,
    Module,
    Node,
    Part,
    State,
    Submodule,
    SubmoduleProfile,
    Value,
    Weight,
)
from partc.ir.lines import Line, Reader
from partc.ir.printer import VERSION
from partc.ir.quantization import ANEW, NONE, STORED, Quantization
from partc.ir.terms import parse_array, parse_attributes, parse_expr, parse_type
from partc.ir.types import BY_SHORT

_V = TypeVar("_V", bound=Value)


def parse_module(text: str, *, file: str = "<text>") -> Module:
    """The module that `text` describes; O(size).

    Raises:
        UserError: the text breaks the grammar; the message names file, line and column.
    """
    reader = Reader(text, file)
    try:
        return _module(reader)
    except RecursionError:
        raise UserError("nested too deeply", where=f"{file}:{reader.number}", hint="is it IR text?") from None


def _module(reader: Reader) -> Module:
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
    if not isinstance(data, dict):
        line.fail("the model header is not a JSON object")
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
    try:
        info = msgspec.convert({**fields, "quantize": None}, ModelInfo)
    except msgspec.ValidationError as error:
        line.fail(f"the model header is wrong: {error}")
    numbers = [info.max_sequence, info.max_batch, info.max_requests, info.prompt, info.generate]
    if min(*numbers, *info.dims.values(), *info.batches, info.batch or 1) < 1:
        line.fail("a number in the model header is below 1")
    if not 0.0 <= info.drafted <= 1.0:
        line.fail("'drafted' in the model header is a share from 0 to 1")
    return replace(info, quantize=fields.get("quantize"))


def _quantization(line: Line, data: object) -> Quantization:
    known = Quantization.__dataclass_fields__
    if not isinstance(data, dict) or not data.keys() <= known.keys():
        line.fail(f"'quantize' in the model header is a mapping of {', '.join(known)}")
    found, precisions = Quantization(**data), (NONE, *ANEW, STORED)
    for value in (found.weights, found.head, found.embeddings):
        if value not in precisions:
            line.fail(f"'quantize' in the model header knows {', '.join(precisions)}, not {value!r}")
    if found.cache not in (NONE, "int8"):
        line.fail(f"the cache of 'quantize' in the model header is none or int8, not {found.cache!r}")
    if type(found.block) is not int or found.block < 2 or found.block.bit_count() != 1:
        line.fail(f"the block of 'quantize' in the model header is a power of two, not {found.block!r}")
    return found


def _parse_body(reader: Reader, info: ModelInfo) -> tuple[Module, dict[str, Value]]:
    line = reader.next()
    graph, values, marks = _graph(reader, line)
    module = Module(info, graph)
    module.candidates = marks.cuts or None
    if marks.starts:
        bounds = [*marks.starts, (-1, len(graph.nodes))]
        if any(start == stop for (_, start), (_, stop) in pairwise(bounds)):
            line.fail("a sub-module without nodes")
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
        array = parse_array(line)
        dtype = next(t.short for t in BY_SHORT.values() if t.numpy == array.dtype)
        _define(line, values, Constant(name, dtype, array.shape, array=array))
    elif line.accept("state "):
        state = State(*_typed(line))
        state.kind = next((kind for kind in KINDS if kind != USUAL and line.accept(kind)), USUAL)
        _define(line, values, state)
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
    return (name, *parse_type(line))


def _weight(line: Line) -> Weight:
    line.expect("%")
    name = line.name()
    line.expect("=")
    dtype, shape = parse_type(line)
    line.expect("from")
    return Weight(name, dtype, shape, source=parse_expr(line))


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
    attributes = parse_attributes(line)
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


def _parse_fact(reader: Reader, line: Line, module: Module, values: dict[str, Value]) -> None:
    if line.accept("sdm"):
        module.sdm = _map_line(line, module.sdm, values)
    elif line.accept("rdm"):
        module.rdm = _map_line(line, module.rdm, values)
    elif line.accept("profile"):
        line.integer()
        module.profile = [*(module.profile or ()), _profile(line)]
    elif line.accept("plan"):
        module.plan = _plan(line)
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
        return msgspec.convert(data, SubmoduleProfile)
    except msgspec.ValidationError as error:
        line.fail(f"not a profile: {error}")


def _plan(line: Line) -> PlanFile:
    data = line.data()
    if not isinstance(data, dict):
        line.fail("not a plan: not a JSON object")
    try:
        return PlanFile.from_json(data)
    except ValidationError as error:
        line.fail(f"not a plan: {error}")


def _part(reader: Reader, line: Line) -> Part:
    device = line.name()
    line.expect("target")
    target = line.name()
    line.expect("{")
    programs: dict[str, Program] = {}
    without: dict[str, dict[str, Program]] = {}
    line = reader.next()
    while line.accept("program"):
        phase = line.name()
        found = without.setdefault(line.name(), {}) if line.accept("without") else programs
        found[phase] = _program(reader, f"{reader.file}: program {phase} of {device}")
        line = reader.next()
    graphs: list[Graph] = []
    while not graphs or not line.accept("}"):
        graphs.append(_graph(reader, line)[0])
        line = reader.next()
    line.end()
    return Part(device, graphs, programs, target, without)


def _program(reader: Reader, where: str) -> Program:
    lines = []
    while not (line := reader.next()).accept("end"):
        lines.append(line.rest())
    return parse_program("\n".join(lines), where)
