"""Times of graphs on one device: medians of repeats, with everything else out of the caches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from partc.errors import PartcError
from partc.profiler.client import Probe
from partc.profiler.graphs import CALL, CHAIN, FLOPS, STREAM, ProbeSizes
from partc.profiler.work import Task, Work

MOST_TOUCHED = 256 << 20
"""Memory that is read between repeats at most, bytes: more than caches hold."""
DEFAULT_TOUCHED = 64 << 20
"""The same where no model says how much a step reads."""


_NOTICEABLE = 0.02
"""The part of a repeat in which its threads had no core, from which on it counts as disturbed."""
_LEAST_CALM = 7
_LEAST_PART = 0.1
"""The part of a sub-module's time alone that counts as its own at least: noise must not make it free."""
_LONG = 5.0
"""Calls' overheads in a pattern, from which on its noise hides one of them."""


@dataclass(frozen=True)
class Effort:
    """The effort of a measurement."""

    repeats: int = 60
    """Repeats, so many that enough of them are undisturbed on a busy machine."""
    rounds: int = 20
    """Repeats of one request; fewer of them where they take long."""
    budget_s: float = 4.0
    """After this long, what there is must do."""


QUICK_EFFORT = Effort(repeats=3, rounds=3, budget_s=0.5)


@dataclass(frozen=True)
class Timed:
    """Repeats of one measurement, seconds."""

    median_s: float
    spread_s: float
    """Half of what lies between the quartiles."""
    repeats: int
    reset_s: float = 0.0
    """Seconds to clear the states, which a request pays once."""


@dataclass(frozen=True)
class Figures:
    """The speed of a device."""

    flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    call_overhead_s: float
    """Seconds of a call of the engine by itself, with waking its threads."""


@dataclass(frozen=True)
class SubmoduleTimes:
    """The sub-modules of a model on one device."""

    times: Mapping[str, dict[str, object]]
    """Digest → an entry of times.json."""
    failures: tuple[str, ...]
    """The measurements that failed, in words."""
    call_overhead_s: float
    """Seconds of a call by itself, with graphs such as these."""


def summary(repeats: Sequence[tuple[float, float]], reset_s: float = 0.0) -> Timed:
    """Median and spread of the undisturbed ones of some repeats (seconds, seconds without a core).

    What other programs took away is no property of the device; where it has nothing else to do, all count. Of a busy
    machine the least disturbed ones do.
    """
    calm = sorted(repeats, key=lambda repeat: repeat[1] / max(repeat[0], 1e-9))
    undisturbed = sum(delay <= _NOTICEABLE * taken for taken, delay in calm)
    seconds = [taken for taken, _ in calm[: max(undisturbed, _LEAST_CALM)]]
    spread = 0.0
    if len(seconds) > 1:
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        spread = (high - low) / 2
    return Timed(statistics.median(seconds), spread, len(seconds), reset_s)


def repeated(
    probe: Probe,
    submodule: str,
    effort: Effort,
    touch_bytes: int,
    *,
    dims: Mapping[str, int] | None = None,
    position: Sequence[int] = (0,),
    length: Sequence[int] = (1,),
    sample: str = "",
) -> Timed:
    """Time a graph; the first two repeats, in which engines allocate, do not count.

    Raises:
        RunError: the device cannot run it.
    """

    def round_of(repeats: int) -> tuple[list[tuple[float, float]], float]:
        found = probe.measure(
            submodule,
            dims or {"batch": 1, "sequence": 1},
            position,
            length,
            sample=sample,
            repeats=repeats,
            touch_bytes=touch_bytes,
        )
        return list(zip(found.seconds, found.delays, strict=False)), found.reset_s

    round_of(1)
    began = time.monotonic()
    round_of(1)
    each_s = max(1e-6, time.monotonic() - began)
    several_at_most = max(1, min(effort.rounds, int(effort.budget_s / each_s)))
    taken: list[tuple[float, float]] = []
    resets: list[float] = []
    end = time.monotonic() + effort.budget_s
    while len(taken) < effort.repeats and (not taken or time.monotonic() < end):
        several, reset = round_of(min(several_at_most, effort.repeats - len(taken)))
        taken += several
        resets.append(reset)
    return summary(taken, statistics.median(resets))


def figures_of(probe: Probe, sizes: ProbeSizes, effort: Effort, touch_bytes: int) -> Figures:
    """FLOP/s and memory bandwidth by test models, and the overhead of a call by chains of two lengths."""
    chains = [repeated(probe, name, effort, touch_bytes).median_s for name in CALL]
    link = max(0.0, chains[1] - chains[0]) / (CHAIN[1] - CHAIN[0])
    overhead = max(0.0, chains[0] - CHAIN[0] * link)
    product = repeated(probe, FLOPS, effort, touch_bytes).median_s
    stream = repeated(probe, STREAM, effort, max(touch_bytes, DEFAULT_TOUCHED)).median_s
    return Figures(
        flops_per_s=2 * sizes.square**3 / _without(overhead, product),
        memory_bandwidth_bytes_per_s=sizes.stream_bytes / _without(overhead, stream),
        call_overhead_s=overhead,
    )


def _without(overhead: float, seconds: float) -> float:
    """Seconds beyond a call's overhead; a graph as small as that counts as it is."""
    return seconds - overhead if seconds > 2 * overhead else seconds


def times_of(
    probe: Probe, work: Work, effort: Effort, overhead_s: float, done: Callable[[], None]
) -> SubmoduleTimes:
    """Time all sub-modules on one device.

    A device calls its engine once a step for all its sub-modules, as one graph; so the overhead of a call is none
    of theirs, nor is what a boundary costs that is gone when they are one graph (inputs, outputs, fusions across
    it). With T(i) the time of sub-module i alone, and C(k) that of k patterns of p sub-modules in one graph:

        pattern = (C(k) - C(1)) / (k - 1)        what one more pattern takes
        alone   = (Σ T(i) - pattern) / p         what each takes only because it is alone, i over the pattern
        t(i)    = T(i) - alone                   so that the sum over a pattern is right; at least a tenth of T(i)
        call    = C(1) - pattern                 what a call takes by itself

    Where a pattern is so long that its noise hides a call, `overhead_s` (of the test chains) is taken for a call's
    overhead; where no pattern repeats, for both. A prefill clears the states of the
    request, which counts.
    """
    timed: dict[str, Timed] = {}
    failures: list[str] = []
    # Graph by graph, so that each is loaded once for both phases.
    for task in sorted(work.tasks, key=lambda task: task.submodules):
        try:
            timed[task.digest] = _timed(probe, work, task, task.graph, task.submodules[:1], effort)
        except PartcError as error:
            failures.append(f"sub-module {task.submodules[0]} in {task.phase}: {error.message}")
        done()
    times: dict[str, dict[str, object]] = {}
    call_s = overhead_s
    for phase in dict.fromkeys(task.phase for task in work.tasks):
        tasks = [task for task in work.tasks if task.phase == phase and task.digest in timed]
        alone_s, call_s = _overheads(probe, work, tasks, timed, effort, overhead_s) or (overhead_s,) * 2
        times.update({task.digest: _entry(task, timed[task.digest], alone_s) for task in tasks})
    return SubmoduleTimes(times, tuple(failures), call_s)


def _timed(probe: Probe, work: Work, task: Task, graph: str, members: Sequence[int], effort: Effort) -> Timed:
    return repeated(
        probe,
        graph,
        effort,
        work.touch_bytes(members, MOST_TOUCHED),
        dims=task.dims,
        position=task.position,
        length=task.length,
        sample=task.sample if len(members) == 1 else "",
    )


def _overheads(
    probe: Probe,
    work: Work,
    tasks: Sequence[Task],
    timed: Mapping[str, Timed],
    effort: Effort,
    overhead_s: float,
) -> tuple[float, float] | None:
    """(alone, call) of `times_of`, seconds; None where there is no pattern, or it cannot be measured."""
    chain = work.chain
    if chain is None or not tasks:
        return None
    kind = {index: task for task in tasks for index in task.submodules}
    pattern = [kind.get(index) for index in chain.members(1)]
    try:
        one, all_of = (
            _timed(probe, work, tasks[0], chain.graph(count), chain.members(count), effort).median_s
            for count in (1, chain.count)
        )
    except PartcError:
        return None
    pattern_s = max(0.0, all_of - one) / (chain.count - 1)
    singles = [timed[task.digest].median_s for task in pattern if task is not None]
    if len(singles) < chain.period:
        return None
    call_s = overhead_s if pattern_s > _LONG * overhead_s else max(0.0, one - pattern_s)
    return max(0.0, sum(singles) - pattern_s) / chain.period, call_s


def _entry(task: Task, found: Timed, alone_s: float) -> dict[str, object]:
    own_s = max(found.median_s - alone_s, _LEAST_PART * found.median_s)
    return {
        "seconds": own_s + (found.reset_s if task.phase == "prefill" else 0.0),
        "spread_s": found.spread_s,
        "repeats": found.repeats,
        "phase": task.phase,
        "submodules": list(task.submodules),
    }
