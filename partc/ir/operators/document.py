"""docs/operators.md, written from the table."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence

from partc.ir.operators import OPERATORS, Operator
from partc.ir.operators.operator import TYPES, AttributeSpec, Signature, Tensor

_BEGINNING = """\
# Operators

Graphs consist of the operators of ONNX and of those below, whose domain is `partc`. This file is written from
`partc/ir/operators` by `python -m partc.ir.operators > docs/operators.md`.

A name in a type stands for the same number wherever it occurs in a node. `...` is any number of leading sizes, and
`1|keys` is 1 or `keys`. A question mark means that an operand may be left out, a star that a group may be repeated.
Some names stand for one of several element types, the same one wherever they occur:

| name | element types |
| --- | --- |
{types}
"""


def document() -> str:
    """The text of docs/operators.md."""
    types = "\n".join(f"| {name} | {', '.join(kinds)} |" for name, kinds in TYPES.items())
    sections = ["\n".join(_section(operator)) for operator in OPERATORS.values()]
    return "\n".join([_BEGINNING.format(types=types), *sections])


def _section(operator: Operator) -> Iterator[str]:
    yield f"## {operator.name}\n\n{operator.summary}\n"
    yield f"```text\n{_call(operator)}\n\n{operator.formula}\n```\n"
    yield from _table(("operand or result", "type", "meaning"), _tensors(operator))
    if operator.attributes:
        rows = ((f"`{spec.name}`", _kind(spec), spec.meaning) for spec in operator.attributes)
        yield from _table(("attribute", "type", "meaning"), rows)
    yield f"Effect: {_effect(operator)}\n"
    yield from _table(("cost of a step", "counts"), _costs(operator))


def _call(operator: Operator) -> str:
    """`y = partc.QuantizedExperts(x, chosen, (data, scales)*)`."""
    signature = operator.signatures[0]
    operands = [tensor.name + "?" * tensor.optional for tensor in signature.operands]
    if signature.repeated:
        operands.append(f"({', '.join(tensor.name for tensor in signature.repeated)})*")
    results = ", ".join(tensor.name for tensor in signature.results)
    return f"{results} = {operator.name}({', '.join(operands)})"


def _tensors(operator: Operator) -> Iterator[tuple[str, ...]]:
    """A row for every operand and result; one for each form where they differ, or where not all forms have them."""
    forms = [(s, {t.name: t for t in (*s.operands, *s.repeated, *s.results)}) for s in operator.signatures]
    for name in max((tensors for _, tensors in forms), key=len):
        versions = [(signature, tensors[name]) for signature, tensors in forms if name in tensors]
        if len(versions) == len(forms) and len({tensor for _, tensor in versions}) == 1:
            yield _tensor_row(versions[0][1], "")
        else:
            yield from (_tensor_row(tensor, _where(signature)) for signature, tensor in versions)


def _tensor_row(tensor: Tensor, where: str) -> tuple[str, ...]:
    sizes = tensor.sizes.replace("|", "\\|")
    return f"`{tensor.name}`", f"{tensor.dtype}[{sizes}]{where}", tensor.meaning


def _where(signature: Signature) -> str:
    return " with " + ", ".join(f"{name} = {value}" for name, value in signature.where.items())


def _kind(spec: AttributeSpec) -> str:
    default = "must be given" if spec.default is None else f"{spec.default} by default"
    return f"{spec.kind.__name__}, {default}"


def _effect(operator: Operator) -> str:
    if not operator.writes:
        return "none."
    signature = operator.signatures[0]
    changed = [
        f"changes the state `{signature.operands[write.operand].name}`, whose new contents are "
        f"`{signature.results[write.result].name}`"
        for write in operator.writes
    ]
    return "; ".join(changed) + "."


def _costs(operator: Operator) -> Iterator[Sequence[str]]:
    for name, cost in (
        ("operations", operator.flops),
        ("bytes moved", operator.moved_bytes),
        ("bytes of scratch", operator.scratch_bytes),
    ):
        text = inspect.getdoc(cost)
        assert text is not None, f"{operator.name}: the docstring of {cost.__name__} is part of the document"
        yield name, text


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""
