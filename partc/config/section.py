"""A mapping that somebody wrote, read key by key, so that every complaint names its place.

model.yaml, devices.yaml, device profiles and planning problems are all read through `Section`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

from partc.errors import ConfigError

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""

T = TypeVar("T")
Word = TypeVar("Word", bound=str)
LARGEST = 10**18
"""No number in a file is larger: products of a few still fit a float, and sizes an int64."""
_SHOWN = 60
"""Characters of a value in a message."""


class Section:
    """One mapping of a file, with its path and, where the format knows them, line numbers."""

    def __init__(
        self, data: object, file: str, path: Path = (), lines: Mapping[Path, int] | None = None
    ) -> None:
        """Refuses `data` that is not a mapping."""
        self.file = file
        self.path = path
        self.lines = lines or {}
        if not isinstance(data, Mapping):
            raise ConfigError(
                f"expected a mapping of keys to values, found {describe(data)}",
                where=self.place(),
                hint="write `key: value`, one on a line",
            )
        self.data = cast("Mapping[str, object]", data)

    def __contains__(self, key: str) -> bool:
        """Whether the key was written."""
        return key in self.data

    def place(self, key: str | int | None = None) -> str:
        """`devices.yaml:7: devices.board.memory`, for messages."""
        path = self.path if key is None else (*self.path, key)
        line = self.lines.get(path)
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        return ": ".join(part for part in (self.file + (f":{line}" if line else ""), name) if part)

    def error(self, message: str, key: str | None = None, *, hint: str | None = None) -> ConfigError:
        """A ConfigError at this place."""
        return ConfigError(message, where=self.place(key), hint=hint)

    def allow(self, keys: Iterable[str], elsewhere: Mapping[str, str] = {}) -> None:
        """Refuses every key that is not in `keys`: says where it belongs (`elsewhere`), or names the nearest one."""
        known = list(keys)
        for key in self.data:
            if key not in known:
                if key in elsewhere:
                    raise self.error(f"`{key}` has no place here", key, hint=elsewhere[key])
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                advice = f"did you mean `{near[0]}`? " if near else ""
                raise self.error(f"unknown key `{key}`", key, hint=f"{advice}known keys: {', '.join(known)}")

    def require(self, key: str, example: str) -> object:
        """The value of a key that must be there."""
        if key not in self.data:
            raise ConfigError(f"the key `{key}` is missing", where=self.place(), hint=f"add `{example}`")
        return self.data[key]

    def section(self, key: str) -> Section:
        """The mapping under `key`; an absent one is empty."""
        return Section(self.data.get(key, {}), self.file, (*self.path, key), self.lines)

    def sections(self, key: str) -> list[Section]:
        """The mappings in the list under `key`; an absent list is empty."""
        items = self.data.get(key, [])
        if not isinstance(items, list):
            raise self.error(f"expected a list, found {describe(items)}", key)
        return [
            Section(item, self.file, (*self.path, key, index), self.lines) for index, item in enumerate(items)
        ]

    def text(self, key: str, default: str | None = None) -> str:
        """A text; it must be there where there is no default."""
        value = self.data.get(key, default) if default is not None else self.require(key, f"{key}: ...")
        if not isinstance(value, str) or not value:
            raise self.error(f"expected a text, found {describe(value)}", key, hint="write it in quotes")
        return value

    def choice(self, key: str, options: Iterable[Word], default: Word | None = None) -> Word:
        """One of a few texts."""
        known = list(options)
        listed = f"choose one of: {', '.join(known)}"
        if key not in self.data and default is None:
            self.require(key, f"{key}: ...")
        value = self.data.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.error(f"expected one of a few words, found {describe(value)}", key, hint=listed)
        if value not in known:
            near = difflib.get_close_matches(value.lower(), known, n=1)
            advice = f"did you mean `{near[0]}`? " if near else ""
            raise self.error(f"`{value}` is not a known {key}", key, hint=f"{advice}{listed}")
        return known[known.index(value)]  # of the options' type, which may be a Literal

    def whole(self, key: str, default: int, minimum: int = 1) -> int:
        """A whole number of at least `minimum`."""
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(f"expected a whole number of at least {minimum}, found {describe(value)}", key)
        self._check_size(value, key)
        return value

    def number(self, key: str, default: float | None = None, *, positive: bool = False) -> float:
        """A finite number, not negative (above zero where `positive`), as written: an int stays an int."""
        value = self.data.get(key, default) if default is not None else self.require(key, f"{key}: ...")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"expected a number, found {describe(value)}", key)
        self._check_size(value, key)
        if math.isnan(value) or value < 0 or (positive and value == 0):
            raise self.error(
                f"expected a finite number {'above zero' if positive else 'of at least zero'}, found {value}",
                key,
            )
        return value

    def quantity(self, key: str, parse: Callable[..., T]) -> T | None:
        """A quantity with a unit, read by a function of `partc.config.units`; None where there is none."""
        return parse(self.data[key], where=self.place(key)) if key in self else None

    def _check_size(self, value: float, key: str) -> None:
        if abs(value) > LARGEST:
            raise self.error(f"expected a finite number up to {LARGEST:.0e}, found {describe(value)}", key)


def describe(value: object) -> str:
    """A value and its type, short enough for a message."""
    if value is None:
        return "nothing"
    names = {bool: "the truth value", int: "the number", float: "the number", str: "the text"}
    if isinstance(value, int) and abs(value) > LARGEST:  # Python itself refuses to write the longest ones
        return f"a number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    if type(value) in names:
        return f"{names[type(value)]} {shorten(repr(value))}"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, Mapping) else repr(value)


def shorten(text: str) -> str:
    """A text as it is shown in a message: what is too long ends in dots."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
