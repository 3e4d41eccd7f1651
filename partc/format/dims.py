"""Sizes of tensors: an int, or a text such as `batch`, `sequence` or `2*sequence + 1`.

Shared by the compiler and the runner, so it needs the standard library alone.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

Dim = int | str
"""One size: known, or an expression of symbols and ints with `+ - * //` and parentheses."""

Shape = tuple[Dim, ...]

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


_EXPRESSION = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]{1,18}(?![0-9A-Za-z_])|[-+*/() ])+")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_CHARACTERS, _MOST_LEVELS = 2000, 200
_MOST = 2**63
"""Sizes are smaller."""


def evaluate(dim: Dim, bindings: Mapping[str, int]) -> int:
    """The value of `dim` when every symbol stands for its entry in `bindings`.

    Raises:
        KeyError: a symbol has no binding.
        ValueError: the text is not an expression of the kind above.
    """
    return dim if isinstance(dim, int) else _walk(_parse(dim), bindings)


def size(dim: Dim, bindings: Mapping[str, int]) -> int:
    """As above, for memory: from 0 to 2^63 - 1. The native runner refuses intermediate results beyond that, too.

    Raises:
        KeyError: a symbol has no binding.
        ValueError: the text is not an expression of the kind above, or its value is no size.
    """
    found = evaluate(dim, bindings)
    if not 0 <= found < _MOST:
        raise ValueError(f"not a size: {dim!r:.80} is below 0, or too large")
    return found


def element_count(shape: Iterable[Dim], bindings: Mapping[str, int]) -> int:
    """Number of elements of a tensor of this shape."""
    return math.prod(evaluate(dim, bindings) for dim in shape)


def symbols(dim: Dim) -> frozenset[str]:
    """The symbols that occur in `dim`."""
    if isinstance(dim, int):
        return frozenset()
    return frozenset(node.id for node in ast.walk(_parse(dim)) if isinstance(node, ast.Name))


def factors(dim: Dim) -> tuple[Dim, ...]:
    """The symbols whose product `dim` is, in order: `batch*sequence` → (`batch`, `sequence`); else `dim` alone."""
    names = tuple(name.strip() for name in dim.split("*")) if isinstance(dim, str) else ()
    return names if names and all(name.isidentifier() for name in names) else (dim,)


def cut_sizes(size: int, count: int) -> list[int]:
    """The sizes of `count` parts that are as equal as whole numbers allow; some are 0 where there are more."""
    return [size * (part + 1) // count - size * part // count for part in range(count)]


def cut_dim(dim: Dim, part: int, count: int) -> Dim:
    """The size of one of `count` such parts, of a known size or an expression."""
    if isinstance(dim, int):
        return cut_sizes(dim, count)[part]
    name = dim if dim.isidentifier() else f"({dim})"
    end, begin = (f"{name}*{at}//{count}" for at in (part + 1, part))
    return f"{end} - {begin}" if part else end


def with_sizes(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """`dim` with expressions for some of its symbols."""
    if isinstance(dim, int):
        return dim
    if dim in sizes:
        return sizes[dim]
    return _SYMBOL.sub(lambda name: f"({sizes[name[0]]})" if name[0] in sizes else name[0], dim)


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    if len(text) > _MOST_CHARACTERS or not _EXPRESSION.fullmatch(text):
        raise ValueError(f"not a size: {text!r:.80}")
    try:
        found = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a size: {text!r:.80}") from error
    _check(found, _MOST_LEVELS)
    return found


def _check(node: ast.expr, levels: int) -> None:
    """Refuse other expressions, and deep ones, which would overflow the stack of whoever walks over them."""
    if levels == 0:
        raise ValueError("not a size: nested too deeply")
    match node:
        case ast.Constant(value=int()) | ast.Name():
            return
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, levels - 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check(left, levels - 1)
            _check(right, levels - 1)
        case _:
            raise ValueError(f"not a size: {ast.unparse(node)!r}")


def _walk(node: ast.expr, bindings: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return bindings[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, bindings)
        case ast.BinOp(left=left, op=op, right=right):
            try:
                return _OPERATORS[type(op)](_walk(left, bindings), _walk(right, bindings))
            except ZeroDivisionError:
                raise ValueError(f"not a size: {ast.unparse(node)!r} divides by zero") from None
        case _:
            raise ValueError(f"not a size: {ast.unparse(node)!r}")
