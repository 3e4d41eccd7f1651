"""Figures of links from records of runs: what messages took, without what runners took for themselves.

Without a common clock only the sum of what the messages of a step took is known; it is shared out in proportion to
the plan. A link of which devices.yaml says the same both ways is taken for the same both ways, where one was used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from partc.config.devices import DevicesConfig
from partc.format.plan import Message
from partc.profiler.links import LinkFigures
from partc.runs.history import History
from partc.runs.steps import Steps
from partc.runs.typical import Typical, TypicalSteps

Pair = tuple[str, str]


def learn_links(
    devices: DevicesConfig, runs: Sequence[Typical], own_s: Mapping[str, float]
) -> dict[Pair, LinkFigures]:
    """(from, to) → the figures of every link in use, and of its way back where that was not used and is alike.

    Args:
        devices: the links as they were given.
        runs: the typical steps of each build.
        own_s: device → seconds that its runner takes for itself in a step.
    """
    points: dict[Pair, dict[float, list[tuple[float, float]]]] = {}
    for found in runs:
        for phase in (phase for phase in found.phases if not phase.overlaps):
            for message, seconds in _links_s(phase, found.history, own_s):
                sizes = points.setdefault((message.sender, message.receiver), {})
                sizes.setdefault(float(message.bytes), []).append((max(0.0, seconds), phase.timeline.weight))
    used = {pair: _fitted(pair, sizes, devices) for pair, sizes in points.items()}
    back = {
        (b, a): figures
        for (a, b), figures in used.items()
        if (b, a) not in used and devices.link(a, b) == devices.link(b, a)
    }
    return {**used, **back}


def _links_s(
    phase: TypicalSteps, history: History, own_s: Mapping[str, float]
) -> Iterator[tuple[Message, float]]:
    """Messages of a step, and the seconds that each took on its link."""
    one_clock = all(record.local for record in history.records)
    one_stage_each = len(history.build.roles) == len(history.case.stages)
    return _each(phase, own_s) if one_clock and one_stage_each else _shared_out(phase, own_s)


def _each(phase: TypicalSteps, own_s: Mapping[str, float]) -> Iterator[tuple[Message, float]]:
    for message in phase.timeline.messages:

        def took(steps: Steps, number: int, message: Message = message) -> float | None:
            return steps.took(phase.timeline, message, number)

        seconds = phase.mean(took)
        if seconds is not None:
            yield message, seconds - own_s[message.sender]


def _shared_out(phase: TypicalSteps, own_s: Mapping[str, float]) -> Iterator[tuple[Message, float]]:
    """Messages from stage to stage, and the seconds of all of them together in proportion to the plan."""
    between = phase.mean(lambda steps, number: steps.between_s.get(number))
    chain = [message for message in phase.timeline.messages if message.kind != "residual"]
    planned = math.fsum(message.seconds for message in chain)
    if between is not None and planned > 0:
        links_s = between - math.fsum(own_s[message.sender] for message in chain)
        yield from ((message, links_s * message.seconds / planned) for message in chain)


def _fitted(
    pair: Pair, sizes: Mapping[float, Sequence[tuple[float, float]]], devices: DevicesConfig
) -> LinkFigures:
    """A line through the means of messages of one size, which count as their phases do in the plan."""
    given = devices.link(*pair)
    points = [(size, _mean(found)) for size, found in sorted(sizes.items())]
    return fit_link(points, given.bandwidth_bytes_per_s if given else math.inf)


def _mean(found: Sequence[tuple[float, float]]) -> float:
    """The weighted mean of (seconds, weight)."""
    return math.fsum(seconds * weight for seconds, weight in found) / math.fsum(weight for _, weight in found)


def fit_link(points: Sequence[tuple[float, float]], given_bandwidth: float) -> LinkFigures:
    """Latency and bandwidth through the smallest and the largest message.

    Where there is one size, or larger messages took no longer, the bandwidth is the given one.

    Args:
        points: (bytes, seconds), by size.
        given_bandwidth: bytes per second.
    """
    (small, small_s), (large, large_s) = points[0], points[-1]
    more, longer = large - small, large_s - small_s
    bandwidth = more / longer if more > 0 and longer > 0 else given_bandwidth
    return LinkFigures(max(0.0, small_s - small / bandwidth), bandwidth)
