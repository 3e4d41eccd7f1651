"""What a report is about: a build or a plan.json alone, and a run of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partc.errors import BundleError
from partc.plan.file import GIVE, PLAN_FILE, read_plan
from partc.plan.simulate.build import Build, read_build
from partc.report.figures import Plan
from partc.report.records import RunRecord, read_record, record_files


@dataclass(frozen=True)
class Subject:
    """All that a report is made from."""

    file: Path
    """plan.json."""
    plan: Plan
    record: RunRecord | None
    """The run that stands beside the plan."""
    skipped: tuple[str, ...] = ()
    """Newer run records that cannot be read, and why."""


def read_subject(path: Path, run: Path | None = None) -> Subject:
    """Read a build folder, or a plan.json alone; with `run` that run, else the newest of this build.

    Raises:
        UserError: no plan, a damaged file, or a build or run of another plan.
    """
    file = path / PLAN_FILE if path.is_dir() else path
    data = read_plan(file)
    build = read_build(path) if path.is_dir() else None
    try:
        plan = Plan(data, build, str(file))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BundleError(f"a damaged plan: {error!r}", where=str(file), hint=GIVE) from error
    if run is not None:
        return Subject(file, plan, _chosen(run, build))
    return Subject(file, plan, *_newest(build)) if build else Subject(file, plan, None)


def _chosen(run: Path, build: Build | None) -> RunRecord:
    record = read_record(run)
    if build is not None and record.plan_id != build.plan_id:
        raise BundleError(
            f"a run of another build (plan {record.plan_id[:12]}, not {build.plan_id[:12]})",
            where=str(run),
            hint="run this build: partc run BUILD --prompt TEXT",
        )
    return record


def _newest(build: Build) -> tuple[RunRecord | None, tuple[str, ...]]:
    """The newest run of this build, and what is wrong with newer ones; those of builds before it are passed over."""
    skipped = []
    for file in record_files(build.folder):
        try:
            record = read_record(file)
        except BundleError as error:
            skipped.append(f"{file}: {error.message}")
            continue
        if record.plan_id == build.plan_id:
            return record, tuple(skipped)
    return None, tuple(skipped)
