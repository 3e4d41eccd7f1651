"""Which computation of the model's own code a value of the graph is: a module, a line, and an operator there.

torch.export keeps with every result the modules that it is computed inside of, and the lines of Python that lead to it.
The original runs the same lines in the same modules, so that a value has one counterpart there, whatever else looks
like it. The text of a `Computation` is a value's `origin`.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import partc

if TYPE_CHECKING:
    import onnx_ir

_SCOPES = "pkg.torch.onnx.name_scopes"
_STACK = "pkg.torch.onnx.stack_trace"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_PARTS = 4
"""Folders of a path, and the file, that tell files of model code apart."""
_OURS = str(Path(partc.__file__).parent)
NETWORK = "network"
"""How the exporter calls the model inside of our wrapper."""


@dataclass(frozen=True)
class Statement:
    """A line of a model's code, in one of its modules."""

    scope: str
    """The module, whose code may lie elsewhere: `model.layers.0.self_attn`."""
    file: str
    """As `short_name` has it."""
    line: int


@dataclass(frozen=True)
class Computation:
    """One of the results of a statement, over all times that the model runs it."""

    statement: Statement
    operator: str
    """torch's: `mul`."""
    index: int
    """Its number among the statement's results of that operator, of which there are `count`."""
    count: int
    place: int
    """Its number among all of the statement's results, of which there are `places`."""
    places: int
    biased: bool = True
    """Whether the bias of a product is in it."""

    @property
    def text(self) -> str:
        """What `parse_computation` reads."""
        data = asdict(self)
        return json.dumps([*data.pop("statement").values(), *data.values()])


@cache
def short_name(file: str) -> str:
    """The end of a path, `transformers/models/llama/modeling_llama.py`: an import is kept for all environments."""
    return "/".join(Path(file).parts[-_PARTS:])


def parse_computation(text: str) -> Computation:
    """The computation of a text that `Computation.text` made."""
    scope, file, line, *rest = json.loads(text)
    return Computation(Statement(scope, file, line), *rest)


def without_bias(origin: str | None) -> str | None:
    """The origin of a product before its bias, by that of the product; None where it is no computation."""
    if origin is None or not is_computation(origin):
        return None
    return replace(parse_computation(origin), biased=False).text


def is_computation(origin: str) -> bool:
    """Whether an origin is a computation's; else it is the name of an input."""
    return origin.startswith("[")


def scope_of(node: onnx_ir.Node) -> str:
    """The innermost module of the source model that a node is computed in: `model.layers.0.self_attn`."""
    modules = [name for name in _names(node)[:-1] if name and not name.startswith("_empty_nn_module_stack")]
    return modules[-1].removeprefix(NETWORK).lstrip(".") if modules else ""


def origins_of(model: onnx_ir.Model) -> dict[str, str]:
    """Name of a value → the text of its computation, for each that a line of the model's own code makes; O(nodes).

    A result of torch may take several nodes: the last of them makes it, those before are values on the way. Of these
    only a product without its bias is one of the original's, too.
    """
    nodes: dict[str, list[onnx_ir.Node]] = defaultdict(list)
    for node in model.graph:
        nodes[_names(node)[-1]].append(node)
    statements = {result: place for result, parts in nodes.items() if (place := _statement(parts[-1]))}
    places: Counter[Statement] = Counter(statements.values())
    counts: Counter[tuple[Statement, str]] = Counter()
    for result, statement in statements.items():
        counts[statement, _operator(result)] += 1
    at: Counter[Statement] = Counter()
    number: Counter[tuple[Statement, str]] = Counter()
    found: dict[str, str] = {}
    for result, statement in statements.items():
        operator = _operator(result)
        key = statement, operator
        made = (operator, number[key], counts[key], at[statement], places[statement])
        found[nodes[result][-1].outputs[0].name or ""] = Computation(statement, *made).text
        for product in _without_bias(nodes[result]):
            found[product] = Computation(statement, *made, biased=False).text
        number[key] += 1
        at[statement] += 1
    return found | _last_rows(model, found)


def _last_rows(model: onnx_ir.Model, origins: Mapping[str, str]) -> dict[str, str]:
    """Last rows (`last_rows.py`) have the origin of what they are rows of."""
    found = {}
    for node in model.graph:
        whole = node.inputs[0] if node.op_type == "GatherElements" else None
        origin = origins.get(whole.name or "") if whole is not None else None
        if origin is not None and _depends(node.inputs[1], "length"):
            found[node.outputs[0].name or ""] = origin
    return found


def _depends(value: onnx_ir.Value | None, name: str) -> bool:
    """Whether a value is an input of this name, or is computed from it alone and from constants."""
    while value is not None and value.name != name:
        producer = value.producer()
        value = producer.inputs[0] if producer is not None and producer.inputs else None
    return value is not None


def _without_bias(nodes: list[onnx_ir.Node]) -> list[str]:
    """The product of a result that is a product and a bias."""
    if [node.op_type for node in nodes[-2:]] != ["MatMul", "Add"]:
        return []
    return [nodes[-2].outputs[0].name or ""]


def _names(node: onnx_ir.Node) -> list[str]:
    """The modules that a node lies in, the outermost first, and then the name of torch's result."""
    text = node.metadata_props.get(_SCOPES, "[]")
    return [name.strip().strip("'\"") for name in text.strip("[]").split(",")]


def _statement(node: onnx_ir.Node) -> Statement | None:
    """The innermost line that is not partc's; ours stand in for some of the model's own, which calls them."""
    theirs = [(short_name(file), line) for file, line in _frames(node) if not file.startswith(_OURS)]
    scope = scope_of(node)
    return Statement(scope, *theirs[-1]) if theirs and _is_inside(node) else None


def _frames(node: onnx_ir.Node) -> list[tuple[str, int]]:
    """The lines of Python that lead to a node, the outermost first."""
    found = _FRAME.finditer(node.metadata_props.get(_STACK, ""))
    return [(frame["file"], int(frame["line"])) for frame in found]


def _is_inside(node: onnx_ir.Node) -> bool:
    """Whether a node is computed by the model, and not by our wrapper around it."""
    return any(name.split(".")[0] == NETWORK for name in _names(node)[:-1])


def _operator(result: str) -> str:
    """The operator of torch by the name of a result: `mul_3` → `mul`."""
    return re.sub(r"_\d+$", "", result)
