"""Nested settings, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from partc.differences.change import shown


def changed_keys(
    before: object, after: object, path: str = ""
) -> Iterator[tuple[str, str | None, str | None]]:
    """(`devices.phone.memory`, before, after) for every value that is another one, or on one side alone."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            inner = f"{path}.{key}" if path else str(key)
            yield from changed_keys(before.get(key), after.get(key), inner)
    elif before != after:
        yield path, shown(before), shown(after)


def plain(value: object) -> Any:
    """Data as YAML writes it: tuples as lists, keys as texts, nothing that is empty."""
    if isinstance(value, Mapping):
        items = ((str(key), plain(each)) for key, each in value.items())
        return {key: each for key, each in items if each not in (None, [], {}, "")}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
