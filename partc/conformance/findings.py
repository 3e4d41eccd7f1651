"""Checks, and what comes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partc.errors import PartcError

if TYPE_CHECKING:
    from partc.conformance.bench import Bench

PLACES = {"source": "a", "middle": "b", "last": "c"}
"""Place in a ring → the device of the small builds that has it."""


class Mismatch(Exception):
    """The runner does something else than the manuals say; the text says what."""


@dataclass(frozen=True)
class Check:
    """Something that the manuals say of a runner."""

    name: str
    section: str
    """Where it is said, in docs/."""
    about: str
    """The rule, which must hold."""
    run: Callable[[Bench, str], None]
    """Raises `Mismatch`, or an error of partc; gets the device whose place the runner has."""
    places: Sequence[str] = ("middle",)
    """Names of `PLACES`; the check runs once in each."""


@dataclass(frozen=True)
class Finding:
    """The outcome of a check in a place."""

    check: str
    place: str
    section: str
    about: str
    seconds: float
    difference: str | None
    """How the runner differs; None: it does not."""

    @property
    def name(self) -> str:
        """The name that `--only` takes."""
        return f"{self.check}/{self.place}"


def findings_of(checks: Sequence[Check], bench: Bench, only: Sequence[str] = ()) -> Iterator[Finding]:
    """Run checks one after the other.

    Args:
        checks: all there are.
        bench: the runner under test.
        only: names of checks, with `/PLACE` or without; empty: all.
    """
    for check in checks:
        for place in check.places:
            if only and check.name not in only and f"{check.name}/{place}" not in only:
                continue
            begin = time.monotonic()
            difference = _difference(check, bench, PLACES[place])
            yield Finding(check.name, place, check.section, check.about, time.monotonic() - begin, difference)


def _difference(check: Check, bench: Bench, device: str) -> str | None:
    """How the runner differs; a ring in which it does is not used again."""
    try:
        check.run(bench, device)
    except (Mismatch, PartcError, OSError) as error:
        bench.end_rings()
        return str(error)
    except Exception as error:  # our client trusts what a source tells it, which may be anything here
        bench.end_rings()
        return f"our end could make nothing of it: {type(error).__name__}: {error}"
    return None


def same(found: Any, right: Any, what: str) -> None:
    """Raise `Mismatch` unless two values are equal."""
    if found != right:
        raise Mismatch(f"{what}: {_short(found)}, expected {_short(right)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
