"""The runs of a build that its plan can be held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.errors import BundleError
from partc.planner.model.plan_file import PLAN_FILE, read_plan
from partc.planner.simulate.build import Build, read_build
from partc.planner.simulate.case import Case, read_case
from partc.runs.records import RUNS, RunRecord, read_record, record_files
from partc.runtime.core.source.inputs import prompt_ends

_RUN = "run the build first: partc run {} {}"


@dataclass(frozen=True)
class History:
    """A build, the plan that it was compiled from, and its runs."""

    build: Build
    case: Case
    records: tuple[RunRecord, ...]
    """The newest first; at least one."""
    skipped: tuple[str, ...]
    """Sentences about records that do not count."""

    @property
    def planned_prompt(self) -> int | None:
        """Tokens of the prompts that the plan is for; None where it is not known."""
        tokens = self.build.roles[self.case.problem.source].predicted.get("prefill_tokens")
        return None if tokens is None else int(tokens)

    @property
    def is_in_parts(self) -> bool:
        """Whether prompts as planned go round the ring in several parts, one behind the other."""
        model = self.build.roles[self.case.problem.source].model
        is_long = len(prompt_ends(self.planned_prompt or 1, 1, model)) > 1
        return is_long and self.case.problem.batch == 1 and len(self.case.stages) > 1


def read_history(runs: Path) -> History:
    """The runs in BUILD/runs; BUILD itself means the same.

    Raises:
        UserError: not a folder of runs, the build beside it is damaged, or no run is one of this build.
    """
    folder = runs.parent if runs.resolve().name == RUNS else runs
    if not (folder / PLAN_FILE).is_file():
        hint = "give the folder of a build that has run, or its runs: build/runs"
        raise BundleError("there are no records of runs", where=str(runs), hint=hint)
    build = read_build(folder)
    takes_tokens = next(iter(build.roles.values())).takes_tokens
    again = _RUN.format(folder, "--prompt TEXT" if takes_tokens else "--input FILE.npz")
    if not (folder / RUNS).is_dir():
        raise BundleError("there are no records of runs", where=str(runs), hint=again)
    plan = folder / PLAN_FILE
    case = read_case(read_plan(plan), str(plan))
    files = record_files(folder)
    if not files:
        raise BundleError("there are no records of runs", where=str(folder / RUNS), hint=again)
    records, skipped = _readable(files, build.plan_id, set(build.roles))
    if not records:
        raise BundleError(f"no run of this build: {skipped[0]}", where=str(folder / RUNS), hint=again)
    return History(build, case, tuple(records), tuple(skipped))


def _readable(files: Sequence[Path], plan_id: str, ring: set[str]) -> tuple[list[RunRecord], list[str]]:
    """The records of a build, and what is wrong with the others."""
    records, skipped = [], []
    for file in files:
        try:
            record = read_record(file)
        except BundleError as error:
            skipped.append(f"{file.name}: {error.message}")
            continue
        if record.plan_id != plan_id:
            skipped.append(
                f"{file.name} is of another build (plan {record.plan_id[:12]}, not {plan_id[:12]})"
            )
        elif any(not ring <= set(request.timings) for request in record.requests):
            skipped.append(f"{file.name} lacks the times of a device")
        else:
            records.append(record)
    return records, skipped
