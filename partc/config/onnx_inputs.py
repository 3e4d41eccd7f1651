"""Sizes and constant inputs of an ONNX graph, as model.yaml gives them.

| key | value |
| --- | --- |
| `dims` | name of a size → the largest value, or `{exactly: N}` for a size that all requests have |
| `inputs` | name of an input → its value in all requests: a number, a truth value or lists of them |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from partc.config.section import Section, describe

EXACTLY = "exactly"

Number = int | float | bool
Numbers = Number | tuple["Numbers", ...]
"""A number, or lists of numbers as tuples."""


@dataclass(frozen=True)
class Sizes:
    """The content of `dims`."""

    largest: Mapping[str, int]
    """Name → the largest value; where a size is exact, its value."""
    exact: frozenset[str]
    """The names of sizes that are fixed."""


def read_sizes(top: Section, is_onnx: bool) -> Sizes:
    """Check `dims`; the names are those of the file, which the import compares.

    Raises:
        ConfigError: a value is no size, or the model is no ONNX graph.
    """
    section = _of_graph(top, "dims", is_onnx, "use max_sequence and max_batch")
    largest, exact = {}, set()
    for name in sorted(section.data, key=str):
        if isinstance(section.data[name], Mapping):
            inner = section.section(name)
            inner.allow((EXACTLY,))
            inner.require(EXACTLY, f"{EXACTLY}: 16")
            largest[str(name)] = inner.whole(EXACTLY, 1)
            exact.add(str(name))
        else:
            largest[str(name)] = section.whole(name, 1)
    return Sizes(largest, frozenset(exact))


def read_constant_inputs(top: Section, is_onnx: bool) -> dict[str, Numbers]:
    """Check `inputs`.

    Raises:
        ConfigError: a value is no number and no list of numbers, or the model is no ONNX graph.
    """
    section = _of_graph(top, "inputs", is_onnx, "remove it: the inputs of other tasks are known")
    return {str(name): _numbers(section, name, section.data[name]) for name in section.data}


def _of_graph(top: Section, key: str, is_onnx: bool, hint: str) -> Section:
    section = top.section(key)
    if section.data and not is_onnx:
        raise top.error(f"`{key}` belongs to ONNX graphs", key, hint=hint)
    return section


def _numbers(section: Section, name: str, value: object) -> Numbers:
    if isinstance(value, list):
        return tuple(_numbers(section, name, item) for item in value)
    if not isinstance(value, int | float):
        raise section.error(
            f"expected a number or a list of numbers, found {describe(value)}",
            name,
            hint=f"write `inputs: {{{name}: 16000}}`",
        )
    return value
