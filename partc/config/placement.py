"""`place`, `pin` and `ban` in devices.yaml: which layers or sub-modules a device holds, must hold, may not hold.

Each is a mapping of devices to ranges: `board: layers 4-11`, `board: [layers 0-1, submodules 9]`. Here they are
only read; what they mean for a model's sub-modules says `partc.planner.placed_by_user`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from partc.config.section import Section, describe

KEYS = ("place", "pin", "ban")
_RANGE = re.compile(r"^\s*(layer|sub-?module)s?\s+(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*$")


@dataclass(frozen=True)
class Range:
    """Layers, or sub-modules, by number."""

    kind: str
    """layers | submodules."""
    first: int
    last: int
    """Inclusive."""
    where: str
    """Place in the file, for messages."""

    def __str__(self) -> str:
        """The text of the range in devices.yaml."""
        if self.last == self.first:
            return f"{self.kind.removesuffix('s')} {self.first}"
        return f"{self.kind} {self.first}-{self.last}"


Ranges = Mapping[str, tuple[Range, ...]]
"""Device → what it is given."""


def read_ranges(top: Section, key: str, devices: Collection[str]) -> Ranges:
    """The ranges under `key`; none where it is absent.

    Raises:
        ConfigError: an unknown device, or something that is not a range.
    """
    if key not in top:
        return {}
    if not top.data[key] or not isinstance(top.data[key], Mapping):
        example = f"write `{key}: {{{next(iter(devices))}: layers 0-3}}`, or remove the line"
        raise top.error(f"expected devices and their layers, found {_said(top.data[key])}", key, hint=example)
    section = top.section(key)
    for name in section.data:
        if name not in devices:
            near = difflib.get_close_matches(name, devices, n=1)
            advice = f"did you mean `{near[0]}`? " if near else ""
            raise section.error(
                f"`{name}` is not one of the devices",
                name,
                hint=f"{advice}choose one of: {', '.join(devices)}",
            )
    return {name: _ranges(section, name) for name in section.data}


def _said(value: object) -> str:
    return "an empty mapping" if value == {} else describe(value)


def _ranges(section: Section, name: str) -> tuple[Range, ...]:
    value = section.data[name]
    texts = value if isinstance(value, list) else [value]
    if not texts:
        raise section.error("the list is empty", name, hint=f"write `{name}: layers 0-3`, or remove the line")
    return tuple(_range(section, name, text) for text in texts)


def _range(section: Section, name: str, text: object) -> Range:
    found = parse_range(text, section.place(name)) if isinstance(text, str) else None
    if found is None:
        raise section.error(
            f"expected layers or sub-modules, found {describe(text)}",
            name,
            hint=f"write `{name}: layers 0-3`, `{name}: submodules 5`, or a list of such",
        )
    if found.last < found.first:
        forwards = f"{found.kind} {found.last}-{found.first}"
        raise section.error(f"`{text}` goes backwards", name, hint=f"write `{forwards}`")
    return found


def parse_range(text: str, where: str) -> Range | None:
    """The range that a text is, `layers 0-3` or `submodule 5`; None: it is none. It may go backwards."""
    match = _RANGE.match(text)
    if match is None:
        return None
    return Range(f"{match[1].replace('-', '')}s", int(match[2]), int(match[3] or match[2]), where)
