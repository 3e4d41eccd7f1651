"""Digests of sub-modules that take the same time: they compute the same at the same sizes, whatever the names.

Identical layers of a transformer have one digest, so that one of them is measured (EdgeShard III profiles every
layer; most are the same). It is a SHA-256 over the canonical text of the sub-module:

```
op {attributes} (operands) -> results     one line a node; an operand is
  n3.0         result 0 of node 3 of this sub-module
  w0 f32[8,4]  the first weight; where it lies and what it is called do not count, nor do its values
  s0, i0, c…   a state, a value from outside, a constant with its values
sizes          those of the phase: every symbol, the valid tokens in the caches
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from partc.ir.graph import Attribute, Constant, Node, State, Value, Weight
from partc.ir.workload import Step


def submodule_digest(nodes: Sequence[Node], step: Step) -> str:
    """The digest of a sub-module in one phase, 64 hexadecimal digits; O(V + E + bytes of constants)."""
    names: dict[Value, str] = {}
    lines = [_line(number, node, names) for number, node in enumerate(nodes)]
    lines.append(json.dumps([sorted(step.sizes.items()), step.context]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _line(number: int, node: Node, names: dict[Value, str]) -> str:
    operands = ["" if value is None else _name(value, names) for value in node.inputs]
    for place, value in enumerate(node.outputs):
        names[value] = f"n{number}.{place}"
    attributes = [f"{name}={_attribute(value)}" for name, value in sorted(node.attributes.items())]
    results = [_type(value) for value in node.outputs]
    return f"{node.op} {{{', '.join(attributes)}}} ({', '.join(operands)}) -> {', '.join(results)}"


def _name(value: Value, names: dict[Value, str]) -> str:
    """The name of an operand; one from outside is numbered when it is first met."""
    if value not in names:
        names[value] = f"{_kind(value)}{len(names)} {_type(value)}"
    return names[value]


def _kind(value: Value) -> str:
    match value:
        case Weight():
            return "w"
        case State():
            return "s"
        case Constant(array=array) if array is not None:
            return f"c{_attribute(array)}"
    return "i"


def _type(value: Value) -> str:
    return f"{value.dtype}{list(value.shape) if value.shape is not None else None}"


def _attribute(value: Attribute) -> str:
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        return f"{data.dtype.str}{data.shape}{hashlib.sha256(data.tobytes()).hexdigest()}"
    return repr(value)
