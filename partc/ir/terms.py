"""The terms of the text form: types, constants, weight expressions and attributes, in whatever line they stand.

Each function takes its term from the line and leaves what follows; it raises UserError, with file, line and
column, where the term breaks the grammar (`partc.ir.text`).
"""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np

from partc.format.dims import Dim, Shape, symbols
from partc.ir.graph import Attribute
from partc.ir.lines import Line
from partc.ir.types import BY_SHORT
from partc.ir.weights import JOINS, MIXES_OF_ROWS, STEPS, Argument, Array, Join, Leaf, Step, WeightExpr


def parse_type(line: Line) -> tuple[str | None, Shape | None]:
    """Element type and sizes; None for each that is a `?`."""
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
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    try:
        symbols(text)
    except ValueError:
        line.fail(f"not a size: {text!r}")
    return text


def parse_array(line: Line) -> Array:
    """A constant: its type, then its elements or the bytes of them."""
    dtype, shape = parse_type(line)
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
        return _elements(items, kind).reshape(sizes)
    except (ValueError, OverflowError) as error:
        line.fail(f"bad constant: {error}")


def _raw_array(line: Line, kind: np.dtype[np.generic], sizes: list[int]) -> Array:
    try:
        return np.frombuffer(base64.b64decode(line.string(), validate=True), kind).reshape(sizes).copy()
    except ValueError as error:
        line.fail(f"bad constant: {error}")


def _elements(items: list[str], kind: np.dtype[np.generic]) -> Array:
    if kind.kind == "b":
        return np.array([_truth(item) for item in items], kind)
    if kind.kind in "iu":
        return np.array([int(item) for item in items], kind)
    return np.array([float(item) for item in items], np.float64).astype(kind)


def _truth(item: str) -> bool:
    if item not in ("true", "false"):
        raise ValueError(f"expected true or false, found {item!r}")
    return item == "true"


def parse_expr(line: Line) -> WeightExpr:
    """A weight expression (`partc.ir.weights`): a tensor of a file or a join of several, then transforms."""
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
    if op not in JOINS and op not in MIXES_OF_ROWS:
        line.fail(f'expected a tensor ("file"#"key") or one of {", ".join([*JOINS, *MIXES_OF_ROWS])}')
    line.expect("(")
    argument = _number_or_word(line.take(r"[-+.\w]+", "a number"))
    if isinstance(argument, str):
        line.fail(f"expected a number, not {argument!r}")
    parts: list[WeightExpr] = []
    while line.accept(","):
        parts.append(parse_expr(line))
    line.expect(")")
    return Join(op, argument, tuple(parts))


def _arguments(line: Line) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    while not line.accept(")"):
        word = line.take(r"[^,()\s]+", "an argument")
        arguments.append(_number_or_word(word))
        line.accept(",")
    return tuple(arguments)


def parse_attributes(line: Line) -> dict[str, Attribute]:
    """Attributes in braces; none where there are no braces."""
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
        return parse_array(line)
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


def _number_or_word(word: str) -> Argument:
    if re.fullmatch(r"-?[0-9]+", word):
        # ONNX has no attribute for what 64 bits cannot hold.
        return int(word) if len(word) <= 20 and -(2**63) <= int(word) < 2**63 else word
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
