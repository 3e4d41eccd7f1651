"""What is combined: the axes of the matrix, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

Cell = Mapping[str, str]
"""Axis → its value."""
Pair = tuple[tuple[str, str], tuple[str, str]]
"""(axis, value) twice."""

AXES: Mapping[str, Mapping[str, str]] = {
    "model": {
        "text": "a Llama: caches alone",
        "hybrid": "Qwen3-Next: caches and recurrent states",
        "source": "T5: an encoder reads the source once",
        "picture": "LLaVA: a picture in a text",
        "encoder": "BERT with labels: no answer of tokens",
    },
    "target": {"tvm": "compiled kernels", "ort": "ONNX Runtime"},
    "weights": {
        "float32": "",
        "float16": "`dtype: float16`",
        "int8": "`quantize: int8`",
        "int4": "`quantize: int4`",
        "stored": "a checkpoint of AWQ, whose integers stay as they are",
        "stored8": "one of GPTQ in 8 bits, in blocks of 16",
    },
    "cache": {"plain": "in the model's type", "int8": "`quantize: {cache: int8}`"},
    "split": {
        "one": "one device",
        "chain": "three devices, each with an interval",
        "returns": "the source has the first and the last sub-modules",
        "group": "devices share blocks (`--strategy optimal-groups`)",
    },
    "runner": {"python": "`--runner python`", "native": "the runner in C++"},
    "life": {
        "quiet": "nothing happens",
        "killed": "a device is killed, and its runner starts again",
        "lost": "a device is killed for good (`survive: one`)",
        "moved": "sub-modules move to another device (`overlap: 1`)",
    },
    "requests": {"one": "a request alone", "four": "four at once, which share steps where they can"},
}


def all_cells() -> Iterator[Cell]:
    """Every combination."""
    for values in product(*AXES.values()):
        yield dict(zip(AXES, values, strict=True))


def pairs_of(cell: Cell) -> Iterator[Pair]:
    """The pairs of values in a cell."""
    yield from combinations(((axis, cell[axis]) for axis in AXES), 2)


def name_of(cell: Cell) -> str:
    """A cell as a test's name."""
    return "-".join(cell[axis] for axis in AXES)
