"""The rules by which a division of a result is one of the operands: one for each kind of operator.

| operators | divided along | operands |
| --- | --- | --- |
| element by element | any axis | those that are not broadcast along it |
| `MatMul`, `Gemm` | columns | the weight's columns and the bias; the rows are whole |
| `partc.QuantizedMatMul` | columns | the rows of data and scales |
| `Reshape` | an axis that numbers behind it belong to | the axis with the same numbers |
| `Transpose` | any | the axis that it was |
| `Split` | any | the parts' divisions, one behind the other, or the same one |
| `RMSNormalization`, `LayerNormalization` | an axis before theirs (heads) | the value; the weights are whole |
| `RotaryEmbedding` | heads | the rotated value; the tables are whole |
| `partc.QuantizeRows` | heads | the rows |
| `partc.UpdateState` | heads | the state and the new rows |
| `partc.Attention` | heads | queries; keys and values, whose heads group those of queries |
| `partc.QuantizedAttention` | heads | the same, and the scales of keys and values |

Anything else is not divided, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from partc.ir.graph import Node
from partc.ir.operators import (
    ATTENTION,
    QUANTIZE_ROWS,
    QUANTIZED_ATTENTION,
    QUANTIZED_MATMUL,
    UPDATE_STATE,
)
from passes.shards.units import Division, Refusal, Units, known, sizes_of

Results = Mapping[int, Division]
"""Place of a result → its division."""
Operands = dict[int, Division]
"""Place of an operand → its division; the others are whole."""

_OF_ONE = (
    "Neg",
    "Sqrt",
    "Exp",
    "Erf",
    "Tanh",
    "Relu",
    "Sigmoid",
    "Softplus",
    "Gelu",
    "Swish",
    "Cast",
    "Identity",
)
_OF_TWO = ("Add", "Sub", "Mul", "Div", "Pow")
ELEMENTWISE = frozenset((*_OF_ONE, *_OF_TWO))


def operands_of(node: Node, results: Results, units: Units) -> Operands:
    """The divisions of a node's operands.

    Raises:
        Refusal: the node cannot be divided so.
    """
    if node.op in ELEMENTWISE:
        return _elementwise(node, results[0])
    rule = _RULES.get(node.op)
    if rule is None:
        raise Refusal(f"{node.op} has no rule")
    return rule(node, results, units)


def _elementwise(node: Node, result: Division) -> Operands:
    """Operands are aligned at their last axes; those of one index along the divided axis are whole."""
    behind = len(sizes_of(node.outputs[0])) - result.axis
    found = {}
    for place, value in enumerate(node.inputs):
        if value is None:
            continue
        axis = len(sizes_of(value)) - behind
        if axis >= 0 and sizes_of(value)[axis] != 1:
            found[place] = Division(axis, result.units)
    return found


def _matmul(node: Node, results: Results, units: Units) -> Operands:
    weight = sizes_of(node.operand(1))
    if results[0].axis != len(sizes_of(node.outputs[0])) - 1 or len(weight) != 2:
        raise Refusal("only the columns of a product are divided")
    return {1: Division(1, results[0].units)}


def _gemm(node: Node, results: Results, units: Units) -> Operands:
    if results[0].axis != 1:
        raise Refusal("only the columns of a product are divided")
    found = {1: Division(0 if node.attributes.get("transB") else 1, results[0].units)}
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = sizes_of(node.operand(2))
        if bias and bias[-1] != 1:
            found[2] = Division(len(bias) - 1, results[0].units)
    return found


def _quantized_matmul(node: Node, results: Results, units: Units) -> Operands:
    if results[0].axis != len(sizes_of(node.outputs[0])) - 1:
        raise Refusal("only the columns of a product are divided")
    return dict.fromkeys(range(1, len(node.inputs)), Division(0, results[0].units))


def _reshape(node: Node, results: Results, units: Units) -> Operands:
    """The numbers of the divided axis and behind it are the same before; each index there becomes a unit."""
    old, new = sizes_of(node.operand(0)), sizes_of(node.outputs[0])
    tail = [known(size) for size in new[results[0].axis :]]
    flat = tuple(unit for unit in results[0].units for _ in range(prod(tail[1:])))
    for axis in reversed(range(len(old))):
        behind = old[axis:]
        if not all(isinstance(size, int) for size in behind):
            break
        if prod(known(size) for size in behind) == len(flat):
            return {0: Division(axis, units.rows(flat, known(old[axis])))}
    raise Refusal(f"it turns {list(old)} into {list(new)}")


def _transpose(node: Node, results: Results, units: Units) -> Operands:
    rank = len(sizes_of(node.operand(0)))
    order = node.attributes.get("perm", tuple(reversed(range(rank))))
    assert isinstance(order, tuple)
    return {0: Division(int(order[results[0].axis]), results[0].units)}


def _split(node: Node, results: Results, units: Units) -> Operands:
    axis = node.attributes.get("axis", 0)
    assert isinstance(axis, int)
    axis %= len(sizes_of(node.operand(0)))
    if len(results) < len(node.outputs):
        raise Refusal("some of its parts lead elsewhere")
    parts = [results[place] for place in range(len(node.outputs))]
    if all(part.axis == axis for part in parts):
        return {0: Division(axis, tuple(unit for part in parts for unit in part.units))}
    for part in parts[1:]:
        units.agree(parts[0], part)
    if parts[0].axis == axis:
        raise Refusal("its parts are divided along different axes")
    return {0: parts[0]}


def _heads(result: Division) -> Division:
    if result.axis != 1:
        raise Refusal("only heads are divided")
    return result


def _normalization(node: Node, results: Results, units: Units) -> Operands:
    axis = node.attributes.get("axis", -1)
    assert isinstance(axis, int)
    if results[0].axis >= axis % len(sizes_of(node.operand(0))):
        raise Refusal("it normalises over all that would be divided")
    return {0: results[0]}


def _rotary(node: Node, results: Results, units: Units) -> Operands:
    if len(sizes_of(node.operand(0))) != 4:
        raise Refusal("its heads have no axis of their own")
    return {0: _heads(results[0])}


def _quantize_rows(node: Node, results: Results, units: Units) -> Operands:
    first, *others = results.values()
    for other in others:
        units.agree(first, other)
    return {0: _heads(first)}


def _update_state(node: Node, results: Results, units: Units) -> Operands:
    return {0: _heads(results[0]), 1: results[0]}


def _attention(node: Node, results: Results, units: Units) -> Operands:
    """The heads that share a head of keys and values become one unit."""
    heads = _heads(results[0])
    shared = Division(1, units.rows(heads.units, known(sizes_of(node.operand(1))[1])))
    cached = 4 if node.op == QUANTIZED_ATTENTION.name else 2
    found = {0: heads, **dict.fromkeys(range(1, cached + 1), shared)}
    for place, value in enumerate(node.inputs[cached + 1 :], cached + 1):
        if value is None:
            continue
        sizes = sizes_of(value)
        if len(sizes) == 4 and sizes[1] != 1:
            found[place] = heads
        elif place == cached + _SINKS:
            found[place] = Division(0, heads.units)
    return found


_SINKS = 3
"""Place, behind keys, values and their scales, of the operand of an attention that has a number for each head."""
_RULES: Mapping[str, Callable[[Node, Results, Units], Operands]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Split": _split,
    "RMSNormalization": _normalization,
    "LayerNormalization": _normalization,
    "RotaryEmbedding": _rotary,
    QUANTIZED_MATMUL.name: _quantized_matmul,
    QUANTIZE_ROWS.name: _quantize_rows,
    UPDATE_STATE.name: _update_state,
    ATTENTION.name: _attention,
    QUANTIZED_ATTENTION.name: _attention,
}
