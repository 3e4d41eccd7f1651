"""`partc plan`: who would compute what, without writing anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import (
    FILE,
    cache_option,
    example,
    json_option,
    model_argument,
    planning_options,
    print_json,
    refuse,
    watch_options,
)
from partc.errors import PlanError

if TYPE_CHECKING:
    from partc.cli.observers import Watch
    from partc.format.fleet import Fleet
    from partc.format.plan import Plan
    from partc.ir.graph import Module
    from partc.planner.model.problem import Problem


@click.command(
    "plan",
    short_help="Show which device would compute what.",
    epilog=example(
        "partc plan model.yaml --target devices.yaml",
        "partc plan model.yaml --target devices.yaml --json > plan.json",
        "partc plan model.yaml --target devices.yaml --fleet demand.yaml",
        "partc plan --problem problem.json --json",
    ),
)
@model_argument(required=False)
@click.option("--target", "devices_file", type=FILE, metavar="DEVICES", help="The devices: a devices.yaml.")
@click.option(
    "--problem", metavar="FILE", help="A planning problem as JSON (- for standard input), instead of MODEL."
)
@click.option(
    "--fleet",
    "demand_file",
    type=FILE,
    metavar="DEMAND",
    help="Form rings of these devices that answer the requests in DEMAND, a demand.yaml.",
)
@planning_options
@cache_option()
@watch_options
@json_option("plan.json, the fleet, or the answer to a problem,")
def plan_command(
    model: str | None,
    devices_file: Path | None,
    problem: str | None,
    demand_file: Path | None,
    strategy: str,
    cut_rule: str,
    cache: bool,
    print_after: tuple[str, ...],
    dump_dir: Path | None,
    timing: bool,
    as_json: bool,
) -> None:
    """Plan MODEL for the devices in DEVICES; nothing is emitted and no weight is read."""
    if problem is not None:
        given = model is not None or devices_file is not None or demand_file is not None
        refuse(given, "--problem excludes MODEL, --target and --fleet")
        _answer(problem, strategy, as_json)
        return
    refuse(model is None, "missing MODEL (or --problem FILE)")
    refuse(devices_file is None, "missing --target DEVICES")
    assert model is not None
    assert devices_file is not None

    from partc.cli.observers import Watch

    watch = Watch(print_after, dump_dir, timing)
    if demand_file is not None:
        refuse(strategy != "optimal", "--fleet plans its rings with --strategy optimal")
        _show_fleet(_fleet(model, devices_file, demand_file, cut_rule, cache, watch), as_json)
        return
    _show(_plan(model, devices_file, strategy, cut_rule, cache, watch), devices_file, as_json)


def _plan(model: str, devices_file: Path, strategy: str, cut_rule: str, cache: bool, watch: Watch) -> Module:
    """The module of MODEL with its plan decided."""
    from partc.api.compiling import to_plan
    from partc.cli.observers import followed

    given = to_plan(model, devices_file, strategy=strategy, cut_rule=cut_rule, cache=cache)
    with followed(watch, given.steps) as following:
        return given.run(following)


def _fleet(
    model: str, devices_file: Path, demand_file: Path, cut_rule: str, cache: bool, watch: Watch
) -> Fleet:
    """The rings of MODEL for a demand."""
    from partc.api.checks import check_targets
    from partc.cli.load import load_model
    from partc.cli.observers import run_watched
    from partc.config.demand import load_demand
    from partc.config.devices import load_devices
    from partc.pipeline.default import fleet_pipeline
    from partc.planner.rings.kinds import check_fleet

    load_demand(demand_file)
    devices = load_devices(devices_file)
    devices.require_links(devices_file)
    check_fleet(devices, str(devices_file))
    check_targets(devices, tools=False)
    steps = fleet_pipeline(devices_file, demand_file, cut_rule)
    module = run_watched(lambda: load_model(model, cache), steps, watch)
    assert module.plan is not None, "form-rings leaves a fleet or raises"
    assert module.plan.fleet is not None
    return module.plan.fleet


def _show_fleet(fleet: Fleet, as_json: bool) -> None:
    from partc.cli.fleet_tables import print_fleet
    from partc.format.plan import plain

    if as_json:
        print_json(plain(fleet))
    else:
        print_fleet(fleet)


def _show(module: Module, devices_file: Path, as_json: bool) -> None:
    from partc.cli.cannot import planned_lines
    from partc.cli.precision import precision_line
    from partc.cli.tables import print_summary, show
    from partc.config.devices import load_devices
    from partc.format.digests import canonical_json
    from partc.planner.explain.summary import summary_of

    assert module.plan is not None, "partition-graph leaves a plan or raises"
    if as_json:
        click.echo(canonical_json(module.plan.to_json()), nl=False)  # byte for byte what compile writes
    else:
        print_summary(summary_of(module.plan, module.profile))
        if line := precision_line(module):
            show(line)
        show(*planned_lines(module, load_devices(devices_file)))


def _answer(file: str, strategy: str, as_json: bool) -> None:
    """Solve the problem in `file` and print the answer; an infeasible one ends with exit code 1."""
    from partc.cli.load import read_text
    from partc.planner.model.problem_json import parse_problem
    from partc.planner.solve import solve

    problem = parse_problem(read_text(file, "give a planning problem as JSON, or - for standard input"), file)
    answer = solve(problem, strategy)
    if as_json:
        print_json(answer.to_json())
    else:
        _print_answer(problem, answer, file, strategy)
    if not answer.feasible:
        click.get_current_context().exit(1)


def _print_answer(problem: Problem, answer: Plan, file: str, strategy: str) -> None:
    """The tables of an answer.

    Raises:
        PlanError: the problem has no answer; says which constraint cannot be met.
    """
    from partc.cli.tables import print_summary
    from partc.planner.explain.summary import summarize
    from partc.planner.groups.evaluate import evaluate_plan

    if answer.stages is None:
        hint = f"{_remedy(problem, answer, strategy)}; --json prints the whole answer"
        raise PlanError(answer.constraint or "no plan meets the constraints", where=file, hint=hint)
    print_summary(summarize(problem, answer, evaluate_plan(problem, answer).predicted))


def _remedy(problem: Problem, answer: Plan, strategy: str) -> str:
    """A hint for a problem without an answer."""
    from partc.planner.explain.remedies import problem_remedy
    from partc.planner.solve import solve

    if strategy != "optimal" and solve(problem, explained=False).feasible:
        return f"{strategy} finds no plan, though there is one: use --strategy optimal"
    return problem_remedy(problem, answer.constraint or "")
