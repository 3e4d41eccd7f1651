"""The tables and figures of EdgeShard's section V, computed from data sheets; nothing here is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from examples.papers.edgeshard.methods import (
    CLOUD,
    METHODS,
    OURS,
    Latency,
    Method,
    Pricing,
    Throughput,
    edgeshard_even,
    latency_of,
    proven,
    throughputs_of,
    value,
)
from examples.papers.planning import priced, trace, with_bandwidth
from partc.format.placement import stages_of
from partc.format.plan import OBJECTIVES
from partc.ir.graph import Module
from partc.planner.model.problem import Phase, Problem
from partc.planner.simulate.build import workflow
from partc.planner.simulate.case import Case, simulate
from partc.planner.simulate.demand import Load

HERE = Path(__file__).parent
DEVICES = HERE / "devices.yaml"
MBIT = 125_000.0
"""Bytes per second."""
BANDWIDTHS = (1, 2, 5, 10, 20, 30, 40, 50)
"""Mbit/s between source and cloud, of Fig. 7 and 8."""
OTHER_SOURCE = "nx_1"
MICRO_BATCHES = 4
ROUNDING = 1e-9


@dataclass(frozen=True)
class Row:
    """One method on one model and testbed."""

    method: str
    latency: Latency | None
    throughputs: list[Throughput]

    @property
    def throughput(self) -> Throughput | None:
        """The best with the paper's batch in flight."""
        return max(self.throughputs, key=lambda cell: cell.tokens_per_s, default=None)

    @property
    def full(self) -> float | None:
        """Tokens per second of the best with as many in flight as fill the ring."""
        return max((cell.full_tokens_per_s for cell in self.throughputs), default=None)


def figures_of(row: Row) -> tuple[float | None, float | None]:
    """Milliseconds per token and tokens per second."""
    ms = row.latency.seconds * 1e3 if row.latency else None
    return ms, row.throughput.tokens_per_s if row.throughput else None


def load(model: str) -> Module:
    """The traced model of `model`.yaml."""
    return trace(HERE / f"{model}.yaml")


def testbed(module: Module) -> Pricing:
    """The problem of Table III and section V-B at any batch."""

    @cache
    def price(batch: int, requests: int) -> Problem:
        return priced(module, DEVICES, batch, requests)

    return price


def with_cloud_link(price: Pricing, mbit_per_s: float) -> Pricing:
    """The testbed with another bandwidth between source and cloud (section V-C)."""
    return lambda batch, requests: _linked(price(batch, requests), mbit_per_s)


def with_source(price: Pricing, source: str) -> Pricing:
    """The testbed with another source; the slow link to the cloud moves along (section V-D)."""

    def moved(batch: int, requests: int) -> Problem:
        return _linked(replace(_linked(price(batch, requests), 50), source=source), 1)

    return moved


def _linked(problem: Problem, mbit_per_s: float) -> Problem:
    return with_bandwidth(problem, problem.source, CLOUD, mbit_per_s * MBIT)


def compare(price: Pricing, methods: Mapping[str, Method] = METHODS) -> list[Row]:
    """Table IV for one model; asserts that nothing is ahead of ours."""
    rows = [
        Row(name, latency_of(method, price), throughputs_of(method, price))
        for name, method in methods.items()
    ]
    ours = next(row for row in rows if row.method == OURS)
    for row in rows:
        _assert_not_behind(ours, row)
    return rows


def _assert_not_behind(ours: Row, other: Row) -> None:
    if other.latency is not None:
        assert ours.latency is not None, other.method
        assert ours.latency.seconds <= other.latency.seconds * (1 + ROUNDING), other.method
    if other.throughput is not None:
        assert ours.throughput is not None, other.method
        assert ours.throughput.tokens_per_s >= other.throughput.tokens_per_s * (1 - ROUNDING), other.method
        assert (ours.full or 0) >= (other.full or 0) * (1 - ROUNDING), other.method


def sweep(price: Pricing, model: str) -> dict[int, list[Row]]:
    """Fig. 7 and 8 for one model: Mbit/s between source and cloud -> the methods that the paper draws."""
    methods = dict(METHODS)
    if model == "llama-2-70b":
        methods = {"EdgeShard-Even": edgeshard_even, **methods}
    return {mbit: compare(with_cloud_link(price, mbit), methods) for mbit in BANDWIDTHS}


@dataclass(frozen=True)
class Profiled:
    """A plan made from the times of some phases, and what it is worth in all of them."""

    phases: str
    seconds: float
    steps_per_s: float


def profiling(price: Pricing) -> list[Profiled]:
    """Fig. 10: plans made from one time per sub-module, as the paper's, and from both phases as they occur.

    The paper's algorithms know one time and one message per layer: the times are those of prefill, those of
    decode, or their mean; the message is that of one token.
    """
    problem = price(1, 1)
    prefill, decode = problem.phases
    mean = tuple(
        {name: (a[name] + b[name]) / 2 for name in a}
        for a, b in zip(prefill.time_s, decode.time_s, strict=True)
    )
    made_from = {
        "prefill": (replace(decode, time_s=prefill.time_s, weight=1),),
        "decode": (replace(decode, weight=1),),
        "their mean": (replace(decode, time_s=mean, weight=1),),
        "both phases": problem.phases,
    }
    return [_profiled(problem, name, phases) for name, phases in made_from.items()]


def _profiled(problem: Problem, name: str, phases: tuple[Phase, ...]) -> Profiled:
    values = {}
    for objective in OBJECTIVES:
        true = replace(problem, objective=objective)
        (plan,) = proven(replace(true, phases=phases))
        values[objective] = value(true, plan)
    return Profiled(name, values["latency"], values["throughput"])


@dataclass(frozen=True)
class Pipelined:
    """A batch in four micro-batches, simulated; tokens per second."""

    throughput: Throughput
    bubbles: float
    no_bubbles: float


def pipelining(row: Row) -> Pipelined | None:
    """Fig. 11 for one method: four micro-batches, as Fig. 5 draws them, each until its last token."""
    cells = [cell for cell in row.throughputs if cell.requests == MICRO_BATCHES]
    if not cells:
        return None
    best = max(cells, key=lambda cell: cell.tokens_per_s)
    return Pipelined(best, simulated(best, "bubbles"), simulated(best, "no-bubbles"))


def simulated(cell: Throughput, mode: str) -> float:
    """Tokens per second from the first prompt to the last token of the batch."""
    case = Case(cell.problem, stages_of(cell.assignment))
    load = Load(cell.requests, case.tokens, mode, cell.requests)
    return cell.batch * simulate(workflow(case, None), load).tokens_per_s
