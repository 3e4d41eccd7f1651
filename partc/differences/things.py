"""What a path names that can be compared: a build, a plan, a record of `partc golden`, a graph or a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from partc.differences.builds import build_record, compare_builds
from partc.differences.change import Change
from partc.differences.graphs import compare_modules
from partc.differences.plans import compare_plans, plan_record
from partc.differences.weights import compare_weights, weight_record
from partc.errors import UserError
from partc.format.plan import PlanFile
from partc.ir.text import parse_module
from partc.planner.model.plan_file import PLAN_FILE, read_plan

if TYPE_CHECKING:
    from partc.ir.graph import Module

Load = Callable[[str], "Module"]
"""Imports a model."""


@dataclass(frozen=True)
class Thing:
    """Something that is compared with another one of its kind."""

    kind: str
    """`build`, `plan` or `graph`."""
    path: Path


def compare_things(before: str, after: str, load: Load) -> list[Change]:
    """What changed between what two paths name.

    Args:
        before: a build, a plan.json, the text of a graph, or a model.
        after: another one of the same kind.
        load: imports a model.

    Raises:
        UserError: a path names nothing of this, or the two are unlike.
    """
    one, other = thing_of(before), thing_of(after)
    if one.kind != other.kind:
        raise UserError(
            f"a {one.kind} cannot be compared with a {other.kind}",
            where=after,
            hint="give two builds, two plans (plan.json), two graphs (partc lower) or two models",
        )
    if one.kind == "build":
        builds = compare_builds(build_record(one.path), build_record(other.path))
        return [*_plans(one.path / PLAN_FILE, other.path / PLAN_FILE), *builds]
    if one.kind == "plan":
        return _plans(one.path, other.path)
    ours, others = _module(before, load), _module(after, load)
    graphs = compare_modules(ours, others)
    if _is_text(before) or _is_text(after):
        return graphs
    return [*graphs, *compare_weights(weight_record(ours), weight_record(others))]


def thing_of(path: str) -> Thing:
    """What a path names; an id of a hub is a graph, too."""
    found = Path(path)
    if (found / "devices").is_dir():
        return Thing("build", found)
    return Thing("plan" if found.suffix == ".json" else "graph", found)


def _plans(before: Path, after: Path) -> list[Change]:
    records = [plan_record(PlanFile.from_json(read_plan(file))) for file in (before, after)]
    return compare_plans(*records)


def _is_text(path: str) -> bool:
    return Path(path).suffix in (".partc", ".txt")


def _module(path: str, load: Load) -> Module:
    """The graph that IR text has, else that of a model."""
    if _is_text(path):
        return parse_module(Path(path).read_text(encoding="utf-8"), file=path)
    return load(path)
