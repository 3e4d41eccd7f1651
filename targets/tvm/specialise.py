"""The graph of one entry: batch and sequence are numbers, and what computed with sizes is folded away.

Code for fixed sizes is smaller and faster, and a static graph needs a fraction of the operators: ranges, shapes and
expansions of them are constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from partc.errors import UserError
from partc.format.dims import evaluate, symbols
from partc.format.program import Cut, Join, Run, row_symbol
from partc.format.state_kinds import StateKind, is_any_rewritten
from partc.format.tasks import SOURCE
from partc.ir.edit import Names
from partc.ir.graph import Constant, Graph, Input, ModelInfo, Module, Part, Value
from partc.pipeline.contract import Context
from partc.pipeline.registry import load_passes
from targets.rewrite import clone

_PASSES = "canonicalize,infer-sizes"
_ROWS = (2, 3, 4, 8, 16)
"""Rows of one token each that there may be code for; steps of other numbers are made of these."""
_GUESSED = (2, 4, 8)
"""Those of one request: with a draft of its next tokens behind each other, `MOST_GUESSED` at most."""


@dataclass(frozen=True, order=True)
class Entry:
    """One size of step that the library has code for; smaller steps are padded to it."""

    batch: int
    sequence: int
    """Of `row_symbol`: of the source, in a graph that a request runs once."""

    @property
    def suffix(self) -> str:
        """The end of its function's name."""
        return f"b{self.batch}_s{self.sequence}"


def rows_of_tokens(info: ModelInfo, kinds: Iterable[StateKind]) -> tuple[int, ...]:
    """The numbers of rows of one token each that a step may compute: of several requests, or of one, which guesses.

    `kinds`: those of the states.
    """
    if not info.has_states or info.uniform_positions or info.start_tokens:
        return ()
    may_guess = info.drafts and not is_any_rewritten(kinds)
    guessed = [size for size in _GUESSED if may_guess and size <= info.max_sequence]
    return tuple([size for size in _ROWS if size <= info.max_requests or size in guessed])


def entries_of(
    graphs: Sequence[Graph],
    info: ModelInfo,
    batches: Sequence[int],
    chunks: Sequence[int],
    shared: Sequence[int] = (),
) -> dict[str, list[Entry]]:
    """Graph → the sizes of step that a device's library has code for, smallest first; a size that no input has is 1.

    Graphs of one `row_symbol` have the same. Batches are one, the largest and those of `batches` between; steps are
    the largest, those of `chunks` below, and for a model that generates one row. Steps of one row have those of
    `shared`, too.
    """
    kinds = {graph.name: row_symbol(graph.name) for graph in graphs}
    entries = {}
    for rows in dict.fromkeys(kinds.values()):
        own = [graph for graph in graphs if kinds[graph.name] == rows]
        one = [1] if info.has_states and rows != SOURCE else []
        entries[rows] = _entries(own, info, rows, batches, (*chunks, *one), () if rows == SOURCE else shared)
    return {name: entries[rows] for name, rows in kinds.items()}


def _entries(
    graphs: Sequence[Graph],
    info: ModelInfo,
    rows: str,
    batches: Sequence[int],
    chunks: Sequence[int],
    shared: Sequence[int],
) -> list[Entry]:
    values = (value for graph in graphs for value in (*graph.inputs, *graph.states()))
    found = {name for value in values for dim in value.shape or () for name in symbols(dim)}
    widest = info.max_batch if "batch" in found else 1
    most = info.dims.get(rows, info.max_sequence) if rows in found else 1
    sizes = {most, *(size for size in chunks if size < most)}
    wide = {widest, *(size for size in batches if size < widest)}
    together = {Entry(size, 1) for size in shared if "batch" in found}
    return sorted({*together, *(Entry(batch, size) for batch in wide for size in sizes)})


def entries_by_graph(
    part: Part,
    info: ModelInfo,
    batches: Sequence[int],
    chunks: Sequence[int],
    shared: Sequence[int] = (),
) -> dict[str, list[Entry]]:
    """The entries of every graph of a part: those of `entries_of`, and where it is called with tiles their sizes."""
    whole = entries_of(part.graphs, info, batches, chunks, shared)
    items = [
        item
        for programs in (part.programs, *part.without.values())
        for one in programs.values()
        for item in one
    ]
    counts = {len(item.parts) for item in items if isinstance(item, Cut | Join)}
    own = {graph.name: tuple(value.name for value in graph.inputs) for graph in part.graphs}
    tiled = {item.submodule for item in items if isinstance(item, Run) and item.inputs != own[item.submodule]}
    found = {name: {*entries} for name, entries in whole.items()}
    for name in tiled:
        found[name] |= {
            Entry(entry.batch, math.ceil(entry.sequence / count)) for entry in whole[name] for count in counts
        }
    return {name: sorted(entries) for name, entries in found.items()}


def specialise(graph: Graph, info: ModelInfo, entry: Entry) -> Graph:
    """A copy of `graph` for the sizes of `entry`; `graph` itself stays as it is. O(nodes) a sweep.

    Other symbols (of an ONNX file) take their largest value.

    Raises:
        UserError: a size depends on data; names the node.
    """
    sizes = {**info.dims, "batch": entry.batch, row_symbol(graph.name): entry.sequence}
    static = clone(graph)
    _fix(static.inputs, sizes)
    _fix(static.states(), sizes)
    _count_rows(static, entry.sequence)
    for node in static.nodes:
        for value in node.outputs:
            value.shape = None
    module = Module(info, static)
    for step in load_passes(_PASSES):
        step.apply(module, Context())
    _check_static(module.graph)
    module.graph.outputs = outputs_of(module.graph)
    return module.graph


def outputs_of(graph: Graph) -> list[Value]:
    """The outputs of the code: the graph's outputs once each, without those that are its inputs."""
    return [value for value in dict.fromkeys(graph.outputs) if not isinstance(value, Input)]


def _fix(values: Iterable[Value], sizes: dict[str, int]) -> None:
    for value in values:
        value.shape = tuple(evaluate(dim, sizes) for dim in value.shape or ())


def _count_rows(graph: Graph, rows: int) -> None:
    """Let a constant 0, 1, … stand for the step input `index`, which counts rows of padding too.

    Else these would have the index 0 that inputs are filled up with, and a mask made of it would show them.
    """
    for value in graph.inputs:
        if value.is_step and value.name == "index":
            counted = np.arange(rows, dtype=np.int64)
            name = Names(graph).fresh("rows")
            graph.replace_uses({value: Constant(name, "i64", (rows,), array=counted)})


def _check_static(graph: Graph) -> None:
    for node in graph.nodes:
        for value in node.outputs:
            if any(symbols(dim) for dim in value.shape or ()):
                raise UserError(
                    f"the size of the output of {node.op} is known only at run time",
                    where=node.place,
                    hint="the tvm target compiles for fixed sizes; use `target: ort` for this device",
                )
