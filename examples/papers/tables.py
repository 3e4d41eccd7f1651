"""Markdown tables, as the README files of the reproductions show them."""

from __future__ import annotations

from collections.abc import Sequence

from partc.format.placement import stages_of


def markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A heading and a table; every column but the first is aligned to the right."""
    head = f"| {' | '.join(columns)} |"
    rule = "|---|" + "---:|" * (len(columns) - 1)
    body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"### {title}", "", head, rule, *body, ""])


def figure(number: float | None, digits: int, missing: str = "–") -> str:
    """A number with so many decimals, thousands apart; `missing` where there is none."""
    return missing if number is None else f"{number:,.{digits}f}"


def ratio(ours: float | None, theirs: float | None) -> str:
    """How many times as large ours is."""
    return "–" if ours is None or theirs is None else f"{ours / theirs:.2f}"


def words(assignment: Sequence[str]) -> str:
    """`orin_1 0-3 → cloud 4-65`."""
    parts = [
        f"{stage.device} {stage.first}" + (f"-{stage.last}" if stage.last > stage.first else "")
        for stage in stages_of(assignment)
    ]
    return " → ".join(parts)
