"""`partc report`: the plan and its run as one HTML file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partc.cli.options import FILE, example, json_option, print_json
from partc.printable import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from partc.report.measured import Compared, Measured
    from partc.report.sources import Subject

_FILE = "report.html"


@click.command(
    "report",
    short_help="Write a plan and its measured run as HTML.",
    epilog=example(
        "partc report build",
        "partc report build --run build/runs/20260131T120000-0.json --json",
        "partc plan model.yaml --target devices.yaml --json > plan.json",
        "partc report plan.json -o report.html",
    ),
)
@click.argument("build", type=FILE, default="build", metavar="[BUILD|PLAN.json]")
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FILE",
    help="The HTML file.  [default: report.html beside the plan]",
)
@click.option("--run", type=FILE, metavar="FILE", help="A run record.  [default: the newest of the build]")
@json_option("the figures that are compared")
def report_command(build: Path, output: Path | None, run: Path | None, as_json: bool) -> None:
    """Write BUILD/report.html: the plan of a build, and the measured times of its last run beside it.

    The report is one file and opens without a network. A plan.json alone is enough, too.

    The measured time per token is the mean of the run's prefill and decode steps, weighed like the plan's;
    the time that a request waits for its turn is left out. In --json, `planned_work: false` marks a run with
    other prompts than those planned for, `one_machine: true` a run whose devices were processes of one machine.
    """
    from partc.api.builds import check_plan_path
    from partc.api.places import check_file
    from partc.report.sources import read_subject
    from partc.report.write import write_report

    check_plan_path(build)
    subject = read_subject(build, run)
    for damaged in subject.skipped:
        note(f"passed over: {damaged}")
    file = output or (build if build.is_dir() else build.parent) / _FILE
    check_file(file, "-o")
    write_report(subject, file)
    if as_json:
        print_json(_summary(subject, file))
        return
    _print(subject)
    click.echo(f"wrote {file}")


def _summary(subject: Subject, file: Path) -> dict[str, Any]:
    """The figures of the report, for programs."""
    from partc.report.measured import Measured
    from partc.report.page import headline

    measured = Measured(subject.plan, subject.record) if subject.record else None
    figures = headline(subject.plan, measured)
    return {
        "report": str(file),
        "objective": subject.plan.case.problem.objective,
        **{name: figure.value if figure else None for name, figure in figures.items()},
        "run": subject.record.started if subject.record else None,
        "one_machine": subject.record.local if subject.record else None,
        "planned": asdict(measured.planned) if measured and measured.planned else None,
        "asked": [asdict(one) for one in measured.asked] if measured else [],
        "compared": [_compared_json(item) for item in measured.compared()] if measured else [],
    }


def _compared_json(item: Compared) -> dict[str, Any]:
    return {
        "name": item.name,
        "kind": "link" if item.is_link else "device",
        "phase": item.phase,
        "predicted_s": item.predicted_s,
        "mean_s": item.mean_s,
        "median_s": item.median_s,
        "ratio": item.ratio,
        "planned_work": item.is_planned_work,
        "steps": item.steps,
    }


def _print(subject: Subject) -> None:
    """Predicted against measured, where there is a run."""
    from partc.cli.tables import show, table
    from partc.report.measured import Measured

    if subject.record is None:
        click.echo("no run of this plan yet: partc run BUILD --prompt TEXT")
        return
    measured = Measured(subject.plan, subject.record)
    columns = ["device or link", "phase", "predicted", "mean", "ratio", "median"]
    rows = _rows(measured)
    title = "Predicted against measured (one step)"
    show(table(title, columns, rows, right=columns[2:]), *_lines(measured))


def _rows(measured: Measured) -> list[list[str]]:
    from partc.config.units import format_seconds
    from partc.report.figures import FORMATS

    return [
        [
            item.name,
            item.phase,
            format_seconds(item.predicted_s),
            format_seconds(item.mean_s),
            "-" if item.ratio is None else FORMATS["factor"](item.ratio) + "*" * (not item.is_planned_work),
            format_seconds(item.median_s),
        ]
        for item in measured.compared()
    ]


def _lines(measured: Measured) -> Iterator[str]:
    """The lines below the table: the whole, its meaning, and deviations from the plan."""
    from partc.report.page import ONE_MACHINE, headline, meaning
    from partc.report.timelines import say_requests

    plan = measured.plan
    figures = headline(plan, measured)
    real, ratio = figures["measured"], figures["ratio"]
    per = f"per {plan.unit}" if plan.is_latency else f"{plan.unit}s/s"
    median = f", median {figures['median'].text}" if figures["median"] else ""
    expected = figures["expected"]
    requests = say_requests(plan, measured.requests)
    beside = f"the {expected.text} simulated for {requests}" if expected else "predicted"
    mark = "" if measured.is_planned_work else "*"
    against = f", {ratio.text}{mark} of {beside}" if ratio else ""
    yield f"measured {real.text} {per}{against}{median}" if real else "nothing measured"
    if real and (said := meaning(plan, measured)):
        yield f"  {said}"
    if measured.record.local:
        yield ONE_MACHINE
    if mark:
        yield f"* not the planned work: {'; '.join(map(str, measured.asked))}"
        yield f"  the plan is for {measured.planned}"
