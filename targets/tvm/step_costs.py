"""The cost of a step by its rows, beside the time in which it reads all weights: what padding and more steps cost.

A step of n rows takes about `reading · (1 + n · row)`, since the kernels compute while little is left to read. `row`
was measured with one thread, 12 layers of 768 and 22 of 2048, from steps of few rows and from prompts:

| weights | AVX2 | AVX-512 with VNNI |
| --- | --- | --- |
| float32 | 0.13 | 0.05 |
| 8 bits | 0.26 | 0.06 |
| 4 bits | 0.27; 0.12-0.22 of few rows | 0.09-0.12; 0.06-0.11 of few rows |

Where memory is slow a row costs little beside reading: on a processor that reads 12 GB/s the least of a range was
measured, on others with up to 26 the most. What is taken of a range lets no prompt cost more than 1.3 times its share
at either end. Few rows are those that a kernel of 4 bits computes while the unpacked weights are in registers
(`InstructionSet.few4`).
Weights of 16 bits are computed with as those of 32, and are half as many bytes. aarch64 was not measured, and counts as
AVX2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partc.format.program import row_symbol
from partc.ir.graph import Graph, Weight
from partc.ir.operators import QUANTIZED_GATHER
from partc.ir.weight_formats import format_of
from partc.ir.weights import Step
from targets.tvm.machine import Machine
from targets.tvm.quantized import stored_bytes
from targets.tvm.specialise import Entry

_PLAIN: Mapping[str, tuple[float, float]] = {
    "int4": (0.20, 0.27), "int8": (0.26, 0.26), "int8_blocks": (0.26, 0.27),
    "16 bits": (0.26, 0.26), "32 bits": (0.13, 0.13),
}  # fmt: skip
_WIDE: Mapping[str, tuple[float, float]] = {
    "int4": (0.09, 0.12), "int8": (0.06, 0.06), "int8_blocks": (0.09, 0.12),
    "16 bits": (0.10, 0.10), "32 bits": (0.05, 0.05),
}  # fmt: skip
"""What weights are stored in → the cost of a row, in steps of few rows and of more; without and with VNNI of 512 bits.

int8_blocks was not measured alone: its products have the tiles of int4, and the bytes of int8."""
_GPU = (0.03, 0.03)
"""The same of a GPU: on an H200 256 rows of a model of 110M in int4 take 7.7 times as long as one row."""
FEW_ROWS: Mapping[str, int] = {"x86_64": 8, "aarch64": 2}
"""Architecture → rows that all of its processors count as few: what is known where TVM is not there to ask."""
_ONE_ROW = frozenset({"Gather", QUANTIZED_GATHER.name})
"""Operators that read rows of a weight, and not all of it."""


def has_wide_vnni(machine: Machine) -> bool:
    """Whether it multiplies bytes in vectors of 512 bits."""
    return "avx512vnni" in machine.enabled()


def step_costs(
    graphs: Sequence[Graph], entries: Mapping[str, Sequence[Entry]], machine: Machine
) -> dict[int, float]:
    """Rows of one sequence that all graphs of steps have code for → cost of such a step in readings of all weights."""
    own = _graphs_of_steps(graphs)
    return _costs(
        own, [{entry.sequence for entry in entries[g.name] if entry.batch == 1} for g in own], machine
    )


def token_costs(
    graphs: Sequence[Graph], entries: Mapping[str, Sequence[Entry]], machine: Machine
) -> dict[int, float]:
    """Rows of one token each that all graphs of steps have code for → the cost of such a step, in the same unit.

    None where a device computes them one after the other, as GPUs do.
    """
    own = [] if machine.is_gpu else _graphs_of_steps(graphs)
    return _costs(
        own, [{entry.batch for entry in entries[g.name] if entry.sequence == 1} for g in own], machine
    )


def expected_token_costs(graph: Graph, rows: Iterable[int], machine: Machine) -> dict[int, float]:
    """Rows of one token each → the time of such a step of a whole model by that of one row, before there is code."""
    few, many = _row_costs([graph], machine)
    most = FEW_ROWS[machine.platform.arch]
    return {size: (1 + size * (few if size <= most else many)) / (1 + few) for size in rows}


def _graphs_of_steps(graphs: Sequence[Graph]) -> list[Graph]:
    return [graph for graph in graphs if row_symbol(graph.name) == "sequence"]


def _costs(graphs: Sequence[Graph], rows_of: Sequence[set[int]], machine: Machine) -> dict[int, float]:
    """The rows that all of these graphs have code for → the cost of a step of so many."""
    common = set[int].intersection(*rows_of) if rows_of else set[int]()
    few, many = _row_costs(graphs, machine)
    most = 0 if machine.is_gpu else _few_rows(machine)
    return {rows: 1 + rows * (few if rows <= most else many) for rows in sorted(common)}


def _few_rows(machine: Machine) -> int:
    """The most rows of which a product of 4 bits reads weights as they are stored."""
    from targets.tvm.kernels.instructions import instructions_of  # which needs TVM

    return instructions_of(machine).few4


def _row_costs(graphs: Iterable[Graph], machine: Machine) -> tuple[float, float]:
    """The cost of a row in steps of few rows and of more, over all matrices; O(nodes)."""
    if machine.is_gpu:
        return _GPU
    by_kind = _WIDE if has_wide_vnni(machine) else _PLAIN
    weights = (
        value
        for graph in graphs
        for node in graph.nodes
        for value in node.operands
        if isinstance(value, Weight) and node.op not in _ONE_ROW and len(value.shape or ()) > 1
    )
    # In the order of the graph: what is added in another one may differ in its last digit.
    bytes_of = {weight: stored_bytes(weight) for weight in dict.fromkeys(weights)}
    read = max(1, sum(bytes_of.values()))
    few, many = (
        sum(by_kind[_kind(weight)][at] * count for weight, count in bytes_of.items()) / read for at in (0, 1)
    )
    return few, many


def _kind(weight: Weight) -> str:
    match weight.source:
        case Step(op="quantize" | "scales" | "integers" | "factors", arguments=(int(bits), int(block), *_)):
            return format_of(bits, block).name
        case _:
            return "16 bits" if weight.dtype in ("f16", "bf16") else "32 bits"
