"""Prints a module in the text form whose grammar stands in `partc.ir.text`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

import numpy as np

from partc.errors import InternalError
from partc.format.dims import Shape
from partc.format.plan import PlanFile
from partc.format.program import Program, print_instruction
from partc.format.state_kinds import USUAL
from partc.ir.graph import (
    Attribute,
    Constant,
    DependencyMap,
    Graph,
    ModelInfo,
    Module,
    Node,
    Part,
    State,
    SubmoduleProfile,
    Value,
    Weight,
)
from partc.ir.quantization import NONE
from partc.ir.types import BY_NUMPY
from partc.ir.weights import Array, print_expr

VERSION = 1
INLINE_ELEMENTS = 64
"""Constants of more elements are printed as base64 of their little-endian bytes."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]*")


def print_module(module: Module) -> str:
    """The text of a module: `parse_module(print_module(m))` prints the same text again; O(size)."""
    return "\n".join(_module_lines(module)) + "\n"


def _module_lines(module: Module) -> Iterator[str]:
    yield f"partc-ir {VERSION}"
    yield f"model {_json(_info_data(module.info))}"
    yield from _graph_lines(module.graph, module)
    yield from _map_lines("sdm", module.sdm)
    yield from _map_lines("rdm", module.rdm)
    for index, profile in enumerate(module.profile or ()):
        yield f"profile {index} {_json(_profile_data(profile))}"
    if module.plan is not None:
        yield f"plan {_json(_plan_data(module.plan))}"
    for part in module.parts or ():
        yield from _part_lines(part)


def _json(data: object) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False)


def _plan_data(plan: PlanFile) -> dict[str, object]:
    """The fields that say something; that an answer is feasible follows from its assignment."""
    data = plan.to_json()
    answer = {key: value for key, value in (data["answer"] or {}).items() if key != "feasible"}
    return _filled({key: data[key] for key in data if key != "format"} | {"answer": _filled(answer)})


def _filled(data: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if value not in (None, "", {})}


def _info_data(info: ModelInfo) -> dict[str, object]:
    """Name, task, and the fields that differ from their defaults: what is special about the model."""
    fields, defaults = asdict(info), asdict(ModelInfo("", ""))
    if info.quantize is not None and info.quantize.otherwise == NONE:
        del fields["quantize"]["otherwise"]  # texts of before it was there stay as they are
    return {key: fields[key] for key in fields if key in ("name", "task") or fields[key] != defaults[key]}


def _profile_data(profile: SubmoduleProfile) -> dict[str, object]:
    data = asdict(profile)
    return data if profile.half_bytes else {key: data[key] for key in data if key != "half_bytes"}


def _graph_lines(graph: Graph, module: Module | None = None) -> Iterator[str]:
    cuts = set(module.candidates or ()) if module else set()
    starts = {id(s.nodes[0]): s.index for s in (module.submodules or ())} if module else {}
    names = _unique_names(graph)
    yield f"graph {name_text(graph.name)} opset {graph.opset} {{"
    yield from (f"  input {_typed(value, names)}" for value in graph.inputs)
    yield from (f"  {_leaf(value, names)}" for value in graph.leaves())
    for node in graph.nodes:
        if id(node) in starts:
            yield f"  submodule {starts[id(node)]}"
        yield f"  {'cut ' if node in cuts else ''}{_node(node, names)}"
    yield f"  output {', '.join(names[value] for value in graph.outputs)}"
    yield "}"


def _unique_names(graph: Graph) -> dict[Value, str]:
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for value in graph.values():
        if value.name in taken:
            raise InternalError(f"two values are called {value.name!r}", where=f"graph {graph.name}")
        taken.add(value.name)
        names[value] = value_text(value)
    return names


def name_text(name: str) -> str:
    """A name as it stands in the text: plain where it can be, else as a JSON string."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def value_text(value: Value) -> str:
    """`%name`."""
    return f"%{name_text(value.name)}"


def type_text(dtype: str | None, shape: Shape | None) -> str:
    """`f32[batch, 64]`; `?` stands for what has not been inferred."""
    sizes = "?" if shape is None else ", ".join(str(dim) for dim in shape)
    return f"{dtype or '?'}[{sizes}]"


def _typed(value: Value, names: dict[Value, str]) -> str:
    return f"{names[value]}: {type_text(value.dtype, value.shape)}"


def _leaf(value: Value, names: dict[Value, str]) -> str:
    kind = type_text(value.dtype, value.shape)
    match value:
        case Weight(source=source) if source is not None:
            return f"weight {names[value]} = {kind} from {print_expr(source)}"
        case Constant(array=array) if array is not None:
            return f"const {names[value]} = {array_text(array)}"
        case State(kind=of):
            return f"state {names[value]}: {kind}{'' if of == USUAL else f' {of}'}"
        case _:
            raise InternalError(f"{value.name} is neither a weight, a constant nor a state")


def array_text(array: Array) -> str:
    """`i64[2] [1, 2]`, or `f32[64, 64] base64"…"` for a large one."""
    kind = type_text(BY_NUMPY[array.dtype].short, array.shape)
    if array.size > INLINE_ELEMENTS:
        raw = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        return f'{kind} base64"{raw}"'
    return f"{kind} [{', '.join(_element(item) for item in array.reshape(-1))}]"


def _element(item: np.generic) -> str:
    if isinstance(item, np.bool_):
        return "true" if item else "false"
    return str(item)


def _node(node: Node, names: dict[Value, str]) -> str:
    outputs = ", ".join(_typed(value, names) for value in node.outputs)
    inputs = ", ".join("_" if value is None else names[value] for value in node.inputs)
    attributes = ", ".join(
        f"{key} = {attribute_text(node.attributes[key])}" for key in sorted(node.attributes)
    )
    shown = f" {{{attributes}}}" if attributes else ""
    scope = f" @ {name_text(node.scope)}" if node.scope else ""
    return f"{outputs} = {node.op}({inputs}){shown}{scope}"


def attribute_text(value: Attribute) -> str:
    """An attribute: `1`, `1.0`, `"text"`, `[1, 2]`, or `tensor f32[1] [0.0]`."""
    match value:
        case np.ndarray():
            return f"tensor {array_text(value)}"
        case tuple():
            return f"[{', '.join(attribute_text(item) for item in value)}]"
        case str():
            return json.dumps(value)
        case float():
            return repr(value)
        case _:
            return str(int(value))


def _map_lines(keyword: str, dependencies: DependencyMap | None) -> Iterator[str]:
    if dependencies is None:
        return
    if not dependencies:
        yield f"{keyword} none"
    for (source, target), values in sorted(dependencies.items()):
        yield f"{keyword} {source} -> {target}: {_value_list(values)}"


def _value_list(values: Iterable[Value]) -> str:
    return ", ".join(value_text(value) for value in values)


def _part_lines(part: Part) -> Iterator[str]:
    yield f"part {part.device} target {part.target} {{"
    yield from _program_lines(part.programs)
    for lost, programs in part.without.items():
        yield from _program_lines(programs, f" without {lost}")
    for graph in part.graphs:
        yield from (f"  {line}" for line in _graph_lines(graph))
    yield "}"


def _program_lines(programs: Mapping[str, Program], when: str = "") -> Iterator[str]:
    for phase, program in sorted(programs.items(), reverse=True):
        yield f"  program {phase}{when}"
        yield from (f"    {print_instruction(instruction)}" for instruction in program)
        yield "  end"
