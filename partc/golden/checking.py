"""A record beside the one that is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from partc.api.pipelines import Following
from partc.differences.builds import compare_builds
from partc.differences.change import Change, changed_values
from partc.differences.graphs import compare_modules
from partc.differences.plans import compare_plans
from partc.differences.weights import compare_weights
from partc.errors import ModelError, PlanError, UserError
from partc.golden.causes import Blame
from partc.golden.config import Case
from partc.golden.making import make_record
from partc.golden.origin import origin_now
from partc.golden.record import Record, read_record
from partc.golden.tokens import compare_answers
from partc.ir.text import parse_module


@dataclass(frozen=True)
class Outcome:
    """What a case is beside its record."""

    case: str
    changes: Sequence[Change]
    """Those that nobody accepted."""
    accepted: Sequence[Change] = ()
    seconds: float = 0.0
    error: str = ""
    """Why it could not be made; empty where it was."""

    @property
    def equal(self) -> bool:
        """Whether it was made, and nothing changed that was not accepted."""
        return not self.changes and not self.error

    def to_json(self) -> dict[str, Any]:
        """The outcome as data for JSON."""
        return {
            "case": self.case,
            "equal": self.equal,
            **({"error": self.error} if self.error else {}),
            "changes": [change.to_json() for change in self.changes],
            "accepted": [change.to_json() for change in self.accepted],
            "seconds": round(self.seconds, 2),
        }


def check_case(case: Case, accept: Sequence[str], following: Following) -> Outcome:
    """Make the record of a case and hold it against the one that is kept.

    Args:
        case: one of golden.yaml.
        accept: patterns (`*`, `?`, `[…]`) of changes that may be: `plan/*`, `graph/operator added/Mul *`.
        following: whoever follows the pipeline.

    Raises:
        ConfigError: nothing is kept of the case, or a file that it names is wrong. A model that is refused and plans
            that do not fit are changes.
        RunError: its ring failed.
    """
    kept = read_record(case)
    try:
        found = compare_records(kept, make_record(case, following))
    except (ModelError, PlanError) as error:
        found = _refused(case, kept, error)
    allowed = [change for change in found if any(fnmatchcase(change.key, pattern) for pattern in accept)]
    return Outcome(case.name, [change for change in found if change not in allowed], allowed)


def compare_records(before: Record, after: Record) -> list[Change]:
    """What changed between two records, with the causes."""
    return Blame.between(before, after).of(list(_changes(before, after)))


def _refused(case: Case, kept: Record, error: UserError) -> list[Change]:
    """A case that was compiled once, and is refused now."""
    now = Record(origin_now(case, kept.origin.steps))
    hint = f" ({error.hint})" if error.hint else ""
    change = Change("plan", "no longer compiled", case.name, None, f"{error.message}{hint}")
    blame = Blame.between(kept, now)
    return [blame.of_import(change)] if isinstance(error, ModelError) else blame.of([change])


def _changes(before: Record, after: Record) -> Iterator[Change]:
    if before.graph is not None and after.graph is not None:
        yield from _graphs(before, after)
    if before.weights is not None and after.weights is not None:
        yield from compare_weights(before.weights, after.weights)
    if before.plan is not None and after.plan is not None:
        yield from compare_plans(before.plan, after.plan)
    if before.bundle is not None and after.bundle is not None:
        yield from compare_builds(before.bundle, after.bundle)
    if before.tokens is not None and after.tokens is not None:
        yield from compare_answers(before.tokens, after.tokens)
    if before.cost is not None and after.cost is not None:
        yield from changed_values("cost", "cost of quantisation", before.cost, after.cost)


def _graphs(before: Record, after: Record) -> Iterator[Change]:
    """The changes of the first graph that changed: later ones follow from it."""
    assert before.graph is not None
    assert after.graph is not None
    for name, text in before.graph.items():
        now = after.graph.get(name)
        if now is None or text == now:
            continue
        files = f"graph.{name}.partc"
        found = compare_modules(parse_module(text, file=files), parse_module(now, file=f"{files} (now)"))
        if found:
            yield from found
            return
