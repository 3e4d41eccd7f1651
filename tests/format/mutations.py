"""Random damage to JSON data."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

Json = Any


def mutate(data: Json, rng: random.Random) -> None:
    """Change one leaf, or leave out, repeat or exchange items of one list or mapping."""
    where, key = rng.choice(list(_places(data)))
    change: Callable[[Json, Json, random.Random], None] = rng.choice(
        [_leaf, _leaf, _leaf, _drop, _copy, _swap]
    )
    change(where, key, rng)


def _places(data: Json) -> Iterator[tuple[Json, Json]]:
    for key in range(len(data)) if isinstance(data, list) else list(data):
        yield data, key
        if isinstance(data[key], list | dict):
            yield from _places(data[key])


def _leaf(where: Json, key: Json, rng: random.Random) -> None:
    value = where[key]
    if isinstance(value, int):
        where[key] = rng.choice(
            [value + rng.choice([-64, -1, 1, 4, 64]), value * 2, rng.randrange(512), 2**40, -1]
        )
    elif isinstance(value, str):
        words = [
            "read",
            "write",
            "update",
            "arena",
            "parameter",
            "constant",
            "float32",
            "int64",
            "add",
            "put",
            "",
        ]
        where[key] = rng.choice(words)


def _drop(where: Json, key: Json, rng: random.Random) -> None:
    del where[key]


def _copy(where: Json, key: Json, rng: random.Random) -> None:
    other = rng.randrange(len(where)) if isinstance(where, list) else rng.choice(list(where))
    where[key] = copy.deepcopy(where[other])


def _swap(where: Json, key: Json, rng: random.Random) -> None:
    other = rng.randrange(len(where)) if isinstance(where, list) else rng.choice(list(where))
    where[key], where[other] = where[other], where[key]
