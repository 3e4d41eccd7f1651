"""Holds the figures of a page against the plan.json that they say they come from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from partc.config.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Shown:
    """A figure as it stands on the page."""

    attributes: Mapping[str, str]
    text: str
    """The text that the reader sees; of a bar, its title."""


def check_figures(plan: Mapping[str, Any], figures: Sequence[Shown]) -> set[str]:
    """Fails where a figure is not what plan.json says, or not written as it is; the places that were shown."""
    places: set[str] = set()
    for shown in figures:
        raw = json.loads(shown.attributes["data-value"])
        assert shown.text.endswith(_written(raw, shown.attributes["data-format"])), shown
        if "data-path" in shown.attributes:
            found = shown.attributes["data-path"].split(" ")
            expected = _follows(shown.attributes["data-rule"], [resolve(plan, place) for place in found])
            assert raw == expected, shown
            places.update(found)
    return places


def resolve(plan: Any, place: str) -> Any:
    """The value at a JSON pointer."""
    for part in place.lstrip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        plan = plan[int(name)] if isinstance(plan, list) else plan[name]
    return plan


def _follows(rule: str, values: list[Any]) -> Any:
    match rule:
        case "value":
            return values[0]
        case "difference":
            return values[0] - sum(values[1:])
        case "sum":
            return sum(values)
        case "product":
            return math.prod(values)
        case "share":
            *parts, whole = values
            return sum(parts) / whole if whole else 0.0
        case _:
            raise AssertionError(rule)


def _written(value: Any, format: str) -> str:
    match format:
        case "bytes":
            return format_bytes(value)
        case "seconds":
            return format_seconds(value)
        case "percent":
            return f"{value:.2%}" if 0 < value < 0.01 else f"{value:.1%}"
        case "rate":
            return f"{value:,.0f}" if value >= 999.95 else f"{value:.4g}"
        case "count":
            return str(value)
        case "factor":
            return f"×{value:.2f}"
        case "text":
            return str(value)
        case _:
            raise AssertionError(format)


class Page(HTMLParser):
    """The content of the markup alone: figures, the names of all elements, and every address in an attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.figures: list[Shown] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self._open: dict[str, str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.addresses += [
            found[name] for name in ("src", "href", "action", "data", "poster") if name in found
        ]
        if tag == "data":
            self._open = found
        elif "data-value" in found:
            self.figures.append(Shown(found, found["title"]))

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.figures.append(Shown(self._open, data))
            self._open = None
