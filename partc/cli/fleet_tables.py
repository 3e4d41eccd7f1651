"""The tables of `partc plan --fleet`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from partc.cli.tables import show, table
from partc.config.units import format_seconds
from partc.format.fleet import Fleet, Latency, RingGroup, Wanted

_NAMED = 3
"""Devices that are named where there are many."""


def print_fleet(fleet: Fleet) -> None:
    """The rings, what they answer of the demand, and the devices that are left over."""
    show(_rings(fleet), _demand(fleet), *_lines(fleet))


def _rings(fleet: Fleet) -> Table:
    columns = ["line", "rings", "stages of the first", "requests/s", "first token", "per token"]
    rows = [
        [
            str(group.demand + 1),
            f"{len(group.rings):,}",
            _stages(group),
            f"{group.capacity_per_s:.3g}",
            format_seconds(group.first_token_s),
            _seconds(group.per_token_s),
        ]
        for group in fleet.groups
    ]
    title = f"Rings ({fleet.devices:,} of {fleet.devices + len(fleet.left_over):,} devices; times of a lone request)"
    return table(title, columns, rows, right=[name for name in columns if name != "stages of the first"])


def _stages(group: RingGroup) -> str:
    """The devices of the first ring with their sub-modules."""
    spans = (
        f"{name} {stage.first}" + (f"-{stage.last}" if stage.last > stage.first else "")
        for name, stage in zip(group.rings[0], group.stages, strict=True)
    )
    return ", ".join(spans)


def _demand(fleet: Fleet) -> Table:
    columns = ["line", "wanted", "can", "first token", "wish", "per token", "wish "]
    rows = [_wanted(place, line) for place, line in enumerate(fleet.wanted)]
    return table("Demand, simulated (median, and what 99 % stay below)", columns, rows, right=columns)


def _wanted(place: int, line: Wanted) -> list[str]:
    return [
        str(place + 1),
        f"{line.rate_per_s:.3g}/s",
        f"{line.capacity_per_s:.3g}/s",
        _latency(line.simulated.first_token),
        _seconds(line.first_token_s),
        _latency(line.simulated.per_token),
        _seconds(line.per_token_s),
    ]


def _lines(fleet: Fleet) -> Iterator[str]:
    devices = "1 device" if fleet.devices == 1 else f"{fleet.devices:,} devices"
    yield (
        f"{devices}; bound {fleet.bound:,}, gap {fleet.gap:.2%} ({fleet.method}, "
        f"of at most {fleet.devices_per_ring} devices)"
    )
    for place, line in enumerate(fleet.wanted):
        yield (
            f"line {place + 1}: {line.simulated.as_wished:.1%} of {line.simulated.requests:,} simulated requests "
            f"are answered as wished, {line.simulated.tokens_per_s:,.0f} tokens/s; its rings can make "
            f"{line.tokens_per_s:,.0f}"
        )
    if not fleet.left_over:
        yield "left over: no device"
        return
    free = set(fleet.left_over)
    left = ((kind, [name for name in names if name in free]) for kind, names in fleet.kinds.items())
    yield "left over: " + "; ".join(_some(kind, names) for kind, names in left if names)


def _some(kind: str, names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{len(names):,} that are like {kind}"


def _latency(latency: Latency | None) -> str:
    return f"{format_seconds(latency.median_s)}, {format_seconds(latency.most_s)}" if latency else ""


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)
