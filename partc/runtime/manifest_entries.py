"""A JSON object of a manifest, read key by key, so that every complaint names its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from partc.errors import BundleError
from partc.runtime.manifest_types import RECOMPILE

_T = TypeVar("_T")
_KINDS: dict[type, str] = {
    bool: "true or false",
    str: "a text",
    int: "an integer",
    list: "a list",
    dict: "an object",
    float: "a number",
}


class Entries:
    """A JSON object at a known place, whose entries are taken out with their types checked."""

    def __init__(self, raw: object, where: str) -> None:
        self.where = where
        if not isinstance(raw, dict):
            raise BundleError("an object is expected here", where=where, hint=RECOMPILE)
        self.raw: dict[str, Any] = raw

    def error(self, key: str, message: str, hint: str = RECOMPILE) -> BundleError:
        """A BundleError that names this place and `key`."""
        return BundleError(f"{key}: {message}", where=self.where, hint=hint)

    def any(self, key: str) -> object:
        """The value of a key that must be there."""
        if key not in self.raw:
            raise self.error(key, "the key is missing")
        return self.raw[key]

    def get(self, key: str, kind: type[_T]) -> _T:
        """The value of a key, of this JSON type."""
        value = self.any(key)
        wrong_bool = isinstance(value, bool) and kind is not bool
        if wrong_bool or not isinstance(value, kind):
            raise self.error(key, f"{_KINDS[kind]} is expected, not {value!r}")
        return value

    def count(self, key: str, least: int = 0) -> int:
        """A whole number of at least `least`."""
        value = self.get(key, int)
        if not least <= value < 2**53:
            raise self.error(key, f"{value} is out of range")
        return value

    def optional(self, key: str, kind: type[_T]) -> _T | None:
        """As `get`; None where there is no such key, or it holds null."""
        return None if self.raw.get(key) is None else self.get(key, kind)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        values = self.get(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, "a list of texts is expected")
        return tuple(values)

    def ints(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        values = self.get(key, list)
        if not all(type(value) is int for value in values):
            raise self.error(key, "a list of integers is expected")
        return tuple(values)

    def child(self, key: str) -> Entries:
        """The object under a key."""
        return Entries(self.any(key), f"{self.where}: {key}")

    def children(self, key: str) -> Iterator[Entries]:
        """The objects in the list under a key."""
        for index, raw in enumerate(self.get(key, list)):
            yield Entries(raw, f"{self.where}: {key}[{index}]")

    def each(self, key: str, read: Callable[[Entries], _T]) -> dict[str, _T]:
        """What `read` makes of every object in the object under a key."""
        child = self.child(key)
        return {name: read(child.child(name)) for name in child.raw}
