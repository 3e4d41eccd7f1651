"""Stages in words: which sub-modules are on which device."""

from __future__ import annotations

from partc.format.placement import Stage, Stages


def ranges(stages: Stages) -> str:
    """`0-3 on phone, 4-11 on board`."""
    return ", ".join(f"{span(part)} on {part.device}" for part in stages)


def span(part: Stage) -> str:
    """`4-11`, or `3` alone."""
    return f"{part.first}-{part.last}" if part.last > part.first else str(part.first)
