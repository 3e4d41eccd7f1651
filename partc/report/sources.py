"""The subject of a report: a build or a plan.json alone, and a run of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partc.errors import BundleError
from partc.planner.model.plan_file import PLAN_FILE, read_plan
from partc.planner.simulate.build import Build, read_build
from partc.report.figures import Plan
from partc.runs.records import RunRecord, read_record, record_files

_RUN = "run this build: partc run BUILD --prompt TEXT"


@dataclass(frozen=True)
class Subject:
    """The inputs of a report."""

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
    plan = Plan(data, build, str(file))
    if run is not None:
        return Subject(file, plan, _chosen(run, plan))
    return Subject(file, plan, *_newest(build, plan)) if build else Subject(file, plan, None)


def _chosen(run: Path, plan: Plan) -> RunRecord:
    record, build = read_record(run), plan.build
    if build is not None and record.plan_id != build.plan_id:
        raise BundleError(
            f"a run of another build (plan {record.plan_id[:12]}, not {build.plan_id[:12]})",
            where=str(run),
            hint=_RUN,
        )
    _check_devices(record, plan, run)
    return record


def _check_devices(record: RunRecord, plan: Plan, file: Path) -> None:
    """Refuse times of a device that the plan does not use."""
    known = set(plan.used)
    for index, request in enumerate(record.requests):
        for name in request.timings:
            if name not in known:
                raise BundleError(
                    f"requests[{index}].timings: `{name}` is not one of the devices of the plan, which are "
                    f"{', '.join(plan.used)}",
                    where=str(file),
                    hint=_RUN,
                )


def _newest(build: Build, plan: Plan) -> tuple[RunRecord | None, tuple[str, ...]]:
    """The newest run of this build, and what is wrong with newer ones; those of builds before it are passed over."""
    skipped = []
    for file in record_files(build.folder):
        try:
            record = read_record(file)
            if record.plan_id != build.plan_id:
                continue
            _check_devices(record, plan, file)
        except BundleError as error:
            skipped.append(f"{file}: {error.message}")
        else:
            return record, tuple(skipped)
    return None, tuple(skipped)
