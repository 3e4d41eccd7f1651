"""One change, as every comparison tells it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from partc.config.units import format_ranges

SHOWN = 60
"""Characters of a value in a change."""


@dataclass(frozen=True)
class Change:
    """A difference that a reader would call one."""

    part: str
    """The part of a record in which it is: `graph`, `plan`, `weights`, …"""
    kind: str
    """What happened, in two words: `operator added`, `cut moved`."""
    subject: str
    """What it happened to: `Mul in layers 0-3 · mlp`."""
    before: str | None = None
    after: str | None = None
    count: int = 1
    """How many things it happened to."""
    causes: tuple[str, ...] = ()
    """What did it, as far as that is known."""

    @property
    def key(self) -> str:
        """What `--accept` patterns are held against: `graph/operator added/Mul in layers 0-3 · mlp`."""
        return f"{self.part}/{self.kind}/{self.subject}"

    @property
    def text(self) -> str:
        """The change in one line."""
        times = f" (×{self.count})" if self.count > 1 else ""
        match (self.before, self.after):
            case (None, None):
                what = ""
            case (None, after):
                what = f": {after}"
            case (before, None):
                what = f": was {before}"
            case (before, after):
                what = f": {before} → {after}"
        return f"{self.kind}: {self.subject}{times}{what}"

    def due_to(self, causes: Iterable[str]) -> Self:
        """The same with its causes."""
        return replace(self, causes=tuple(causes))

    def to_json(self) -> dict[str, Any]:
        """The fields, as data for JSON."""
        return {
            "part": self.part,
            "kind": self.kind,
            "subject": self.subject,
            "before": self.before,
            "after": self.after,
            "count": self.count,
            "causes": list(self.causes),
        }


def changed_values(
    part: str, kind: str, before: Mapping[str, Any], after: Mapping[str, Any], subject: str = "{}"
) -> list[Change]:
    """A change for every key whose value is another one, or is on one side alone."""
    keys = dict.fromkeys([*before, *after])
    return [
        Change(part, kind, subject.format(key), shown(before.get(key)), shown(after.get(key)))
        for key in keys
        if before.get(key) != after.get(key)
    ]


def shown(value: object) -> str | None:
    """A value as text, long ones cut."""
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


_LAYER = re.compile(r"(?<![^.])(\d+)(?![^.])")


def layer_of(scope: str) -> tuple[str, int | None]:
    """A scope without the number of its layer, and that number: `model.layers.3.mlp` → `model.layers.*.mlp`, 3."""
    found = _LAYER.search(scope)
    if found is None:
        return scope, None
    return f"{scope[: found.start()]}*{scope[found.end() :]}", int(found[1])


def place_text(scope: str, layers: Sequence[int]) -> str:
    """`layers 0-3 · mlp` for such a scope and the numbers of its layers; a scope without layers as it is."""
    if not layers:
        return scope or "the whole graph"
    rest = scope.rpartition("*")[2].strip(".")
    word = "layer" if len(set(layers)) == 1 else "layers"
    return f"{word} {format_ranges(layers)}" + (f" · {rest}" if rest else "")
