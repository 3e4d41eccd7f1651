"""Tests that take turns: a run plays some of them, the next commit others, and the tier `slow` those that are left.

    @pytest.mark.in_turns(4)      # a fourth of the cases in each run
    @pytest.mark.parametrize(…)

    pytestmark = pytest.mark.in_turns(3, whole=True)   # all tests of a file, which share what is made for them

What a breadth of families, targets or kills holds is seldom broken for one of them alone; so every run tries a part,
no two runs in a row the same one, and a change that is about all of them is tried with `-m "in_turns"`.
"""

from __future__ import annotations

import subprocess
import zlib
from functools import cache
from pathlib import Path

import pytest


@cache
def turn() -> int:
    """A number that changes with every commit; 0 where there is no history."""
    found = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(found.stdout) if found.returncode == 0 else 0


def take_turns(items: list[pytest.Item]) -> None:
    """Put the tests whose turn it is not into the tier `slow`."""
    for item in items:
        marker = item.get_closest_marker("in_turns")
        if marker is not None and (_key(item, **marker.kwargs) + turn()) % marker.args[0]:
            item.add_marker(pytest.mark.slow)


def _key(item: pytest.Item, *, whole: bool = False) -> int:
    return zlib.crc32((item.nodeid.partition("::")[0] if whole else item.nodeid).encode())
