"""docs/combinations.md, written from the axes and the rules: `python -m tests.matrix.document`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.matrix.axes import AXES, all_cells, pairs_of
from tests.matrix.covering import covering
from tests.matrix.rules import RULES, rule_of

FILE = Path(__file__).parents[2] / "docs" / "combinations.md"


def text() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    possible = [cell for cell in all_cells() if rule_of(cell) is None]
    pairs = {pair for cell in possible for pair in pairs_of(cell)}
    yield "# Combinations"
    yield ""
    yield "What goes together, and what does not. The page is written from `tests/matrix`"
    yield "(`python -m tests.matrix.document`), whose cells are run: each is compiled, played by real processes, and"
    yield "compared with the uncut model of the same weights, token by token (groups in int8 with themselves,"
    yield "undisturbed: a device rounds the activations of its share by themselves)."
    yield ""
    yield "| axis | value | what it is |"
    yield "| --- | --- | --- |"
    for axis, values in AXES.items():
        for value, what in values.items():
            yield f"| {axis} | {value} | {what} |"
    yield ""
    yield f"Of {len(possible):,} combinations, {len(covering(possible))} cells hold all {len(pairs)} pairs of values."
    yield "`pytest -m slow tests/matrix` plays these, and every run of the suite some of them, others with each commit."
    yield ""
    yield "## What does not go together"
    yield ""
    yield "| combination | | why | instead |"
    yield "| --- | --- | --- | --- |"
    for rule in RULES:
        what = " with ".join(f"{axis} {' or '.join(values)}" for axis, values in rule.when.items())
        yield f"| {what} | {rule.kind} | {rule.reason} | {rule.instead} |"
    yield ""
    yield "Where something of these is asked for, `partc compile` says so and names the key."


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
