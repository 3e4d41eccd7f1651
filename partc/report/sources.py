"""What a report is about: a build or a plan.json alone, and a run of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.report.figures import Json, Plan
from partc.report.records import RunRecord, read_record, record_files
from partc.runtime.manifest_types import MANIFEST_FILE

PLAN_FILE = "plan.json"
_FORMAT = "partc-plan/1"
_COMPILE = "write one: partc compile MODEL --target DEVICES, or partc plan … --json > plan.json"


@dataclass(frozen=True)
class Subject:
    """All that a report is made from."""

    file: Path
    """plan.json."""
    plan: Plan
    manifests: Mapping[str, Json]
    """Device → its manifest.json; empty where there is a plan alone."""
    record: RunRecord | None
    """The run that stands beside the plan."""


def read_subject(path: Path, run: Path | None = None) -> Subject:
    """Read a build folder, or a plan.json alone; with `run` that run, else the newest of this build.

    Raises:
        BundleError: no plan, a damaged file, or a run of another build.
    """
    is_build = path.is_dir()
    file = path / PLAN_FILE if is_build else path
    plan = _plan(file)
    manifests = _manifests(path) if is_build else {}
    plan_id = next((str(item.get("plan_id")) for item in manifests.values()), None)
    if run is not None:
        return Subject(file, plan, manifests, _chosen(run, plan_id))
    return Subject(file, plan, manifests, _newest(path, plan_id) if is_build else None)


def _plan(file: Path) -> Plan:
    data = _json(file)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise BundleError(f"not a plan of format {_FORMAT}", where=str(file), hint=_COMPILE)
    if not data.get("answer") or not data.get("predicted"):
        raise BundleError("there is no plan in it", where=str(file), hint=_COMPILE)
    try:
        return Plan(data)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BundleError(f"a damaged plan: {error!r}", where=str(file), hint=_COMPILE) from error


def _json(file: Path) -> Any:
    if not file.exists():
        raise BundleError("no such file", where=str(file), hint=_COMPILE)
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(f"not JSON: {error}", where=str(file), hint=_COMPILE) from error


def _manifests(build: Path) -> dict[str, Json]:
    files = sorted((build / "devices").glob(f"*/{MANIFEST_FILE}"))
    found = {file.parent.name: _json(file) for file in files}
    for file, data in zip(files, found.values(), strict=True):
        if not isinstance(data, dict):
            raise BundleError("not a manifest", where=str(file), hint=_COMPILE)
    return found


def _chosen(run: Path, plan_id: str | None) -> RunRecord:
    record = read_record(run)
    if plan_id is not None and record.plan_id != plan_id:
        raise BundleError(
            f"a run of another build (plan {record.plan_id[:12]}, not {plan_id[:12]})",
            where=str(run),
            hint="run this build: partc run BUILD --prompt TEXT",
        )
    return record


def _newest(build: Path, plan_id: str | None) -> RunRecord | None:
    """The newest run of this build; those of builds that stood here before are passed over."""
    records = (read_record(file) for file in record_files(build))
    return next((record for record in records if record.plan_id == plan_id), None)
