"""Timelines as lanes with bars, in per cent of the time shown: the template only places them.

No chart library: bars are elements of the page, so that they follow its width, its colours in light and
dark, the reader's font size and the screen reader, and the file stays small (plotly alone is 4.7 MB and
draws on a canvas of its own).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from partc.config.units import format_seconds

_TICKS = 4

Place = tuple[str, ...]
"""The place of an event: a device alone, or the two ends of a link."""


def say_place(place: Place) -> str:
    """`phone`, or `phone → board`."""
    return " → ".join(place)


@dataclass(frozen=True)
class Span:
    """Something that takes time."""

    lane: Place
    start_s: float
    end_s: float
    tone: str
    """The colour: a class of the style sheet."""
    title: str
    """The meaning, in words."""
    label: str = ""
    """Short text on the bar, where there is room."""


@dataclass(frozen=True)
class Bar:
    """A span as it is placed."""

    left: str
    width: str
    """Both in per cent of the lane."""
    tone: str
    title: str
    label: str


@dataclass(frozen=True)
class Lane:
    """A device's or a link's row."""

    label: str
    tone: str
    """Colour of its name's mark; empty: a link."""
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Timeline:
    """Rows over one axis of time."""

    caption: str
    summary: str
    """The text for readers who do not see the chart."""
    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[str, str], ...]
    """(place in per cent, time as text)."""
    end_s: float


def make_timeline(
    caption: str,
    summary: str,
    lanes: Iterable[tuple[Place, str]],
    spans: Sequence[Span],
    shown_s: float | None = None,
) -> Timeline:
    """Place spans on lanes.

    Args:
        caption: over the timeline.
        summary: instead of it.
        lanes: (place, tone) of every lane, from above; a link has no tone.
        spans: in any order; what starts after `shown_s` is left out, what ends after it is cut there.
        shown_s: the end of the axis; None: the end of the last span.
    """
    end = shown_s or max((span.end_s for span in spans), default=0.0) or 1.0
    rows: dict[Place, list[Bar]] = {}
    for span in sorted(spans, key=lambda item: item.start_s):
        if span.start_s < end:
            rows.setdefault(span.lane, []).append(_bar(span, end))
    placed = tuple(Lane(_label(place), tone, tuple(rows.get(place, ()))) for place, tone in lanes)
    return Timeline(caption, summary, placed, _ticks(end), end)


def percent(part: float, whole: float) -> str:
    """A length for a style: `12.345%`; the same digits on every machine."""
    return f"{100 * part / whole if whole else 0.0:.3f}%"


def _label(place: Place) -> str:
    """A link stands below its sender, which needs no second mention."""
    return place[0] if len(place) == 1 else f"→ {place[1]}"


def _bar(span: Span, end: float) -> Bar:
    width = min(span.end_s, end) - span.start_s
    return Bar(percent(span.start_s, end), percent(width, end), span.tone, span.title, span.label)


def _ticks(end: float) -> tuple[tuple[str, str], ...]:
    """Round times, about `_TICKS` of them."""
    raw = end / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= raw * 0.999)
    count = math.floor(end / step * (1 + 1e-9))
    return tuple((percent(index * step, end), format_seconds(index * step)) for index in range(count + 1))
