"""`partc simulate`: requests followed through a plan, without a device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partc.cli.options import FILE, Range, example, json_option, print_json, refuse
from partc.printable import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from partc.planner.model.problem import Problem
    from partc.planner.simulate.build import Build
    from partc.planner.simulate.case import Case
    from partc.planner.simulate.script import Workflow

_REQUESTS = 4
_LEAST, _MOST = 1e-6, 1e6
"""Factors of a what-if."""


@click.command(
    "simulate",
    short_help="Follow requests through a plan, without devices.",
    epilog=example(
        "partc simulate build",
        "partc simulate build --requests 8 --tokens 32 --mode bubbles",
        "partc simulate plan.json --bandwidth phone-board=2x --speed board=1.5x",
        "partc simulate shared --efficiency 0.8",
        "partc simulate build --drafted 0.6",
        "partc simulate build --jitter 0.1 --seed 1 --json",
    ),
)
@click.argument("plan", metavar="BUILD|PLAN.json", type=FILE)
@click.option(
    "--requests",
    type=click.IntRange(1),
    metavar="N",
    default=_REQUESTS,
    show_default=True,
    help="Requests that arrive at once.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens of each request.  [default: those of the workload in model.yaml]",
)
@click.option(
    "--mode",
    metavar="MODE",
    type=click.Choice(["sequential", "bubbles", "no-bubbles"]),
    default="no-bubbles",
    show_default=True,
    help="sequential: one request after the other; bubbles: all finish a token before any begins the next; "
    "no-bubbles: each goes on at once, as the runner does.",
)
@click.option("--compare/--no-compare", default=True, show_default=True, help="Show the other modes, too.")
@click.option(
    "--bandwidth",
    multiple=True,
    metavar="A-B=FACTOR",
    help="What if this link were faster: a-b=2x both ways, 'a->b=2x' one way. Repeatable.",
)
@click.option(
    "--speed", multiple=True, metavar="A=FACTOR", help="What if this device were faster: a=2x. Repeatable."
)
@click.option(
    "--efficiency",
    type=Range(0, 1, min_open=True),
    metavar="PART",
    help="Assume that a share of a block runs at this fraction of full speed, such as 0.8 (Galaxy's scaling runs come "
    "to 0.76 to 0.81).",
)
@click.option(
    "--jitter",
    type=Range(0, 10),
    metavar="PART",
    default=0.0,
    help="Vary the time of every run and message by about this fraction, such as 0.1.",
)
@click.option("--seed", type=int, metavar="N", default=0, show_default=True, help="Seed of the variation.")
@click.option(
    "--drafted",
    type=Range(0, 1),
    metavar="PART",
    help="Follow one request with guessed tokens, of whose drafts this part is right; shows right and void guesses.",
)
@json_option("the simulation")
def simulate_command(
    plan: Path,
    requests: int,
    tokens: int | None,
    mode: str,
    compare: bool,
    bandwidth: tuple[str, ...],
    speed: tuple[str, ...],
    efficiency: float | None,
    jitter: float,
    seed: int,
    drafted: float | None,
    as_json: bool,
) -> None:
    """Follow requests through the devices and links of a plan.

    The times are those that the plan predicts; no device takes part. Where devices share blocks, tiles travel while
    products are computed, as in the plan. A build takes at most as many requests
    at once as its model.yaml says (max_requests); the others wait.
    """
    from partc.cli.timeline import print_simulation
    from partc.planner.simulate import MODES
    from partc.planner.simulate.build import workflow
    from partc.planner.simulate.case import simulate
    from partc.planner.simulate.demand import Load

    given = [name for name in ("requests", "mode") if _is_given(name)]
    refuse(
        drafted is not None and bool(given),
        f"--drafted follows one request; leave out --{', --'.join(given)}",
    )
    case, build = _read(plan)
    case = _changed(case, bandwidth, speed, efficiency)
    work = workflow(case, build)
    for idle in _idle(case, work, bandwidth, speed):
        note(idle)
    if drafted is not None:
        _guesses(case, case.tokens if tokens is None else tokens, drafted, jitter, seed, as_json=as_json)
        return
    in_flight = min(requests, build.max_requests) if build else requests
    count = case.tokens if tokens is None else tokens
    wanted = [mode, *(other for other in MODES if other != mode and compare)]
    found = {name: simulate(work, Load(requests, count, name, in_flight, jitter, seed)) for name in wanted}
    if as_json:
        others = [_figures(found[name].to_json()) for name in MODES if name in found]
        print_json({**found[mode].to_json(), **({"modes": others} if compare else {})})
        return
    order = [found[name] for name in MODES] if compare else []
    print_simulation(found[mode], order, list(work.scripts[0].programs), in_flight)


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _guesses(case: Case, tokens: int, chance: float, jitter: float, seed: int, *, as_json: bool) -> None:
    """One request with guessed tokens, beside the same without."""
    from dataclasses import replace

    from partc.cli.timeline import print_guesses
    from partc.planner.simulate.guesses import simulate_guesses

    found = simulate_guesses(case, tokens, chance, jitter=jitter, seed=seed)
    without = replace(simulate_guesses(case, tokens, 0.0, jitter=jitter, seed=seed), mode="no guesses")
    if as_json:
        print_json({**found.to_json(), "without": _figures(without.to_json())})
        return
    print_guesses(found, without, list(dict.fromkeys(stage.device for stage in case.stages)))


def _figures(simulation: dict[str, Any]) -> dict[str, Any]:
    """The summary of a mode, without its events."""
    keys = ("mode", "makespan_s", "tokens_per_s", "first_token_s", "pace_s")
    return {key: simulation[key] for key in keys}


def _read(path: Path) -> tuple[Case, Build | None]:
    """The plan that a command line names; with its build where it is one.

    Raises:
        UserError: it is neither a plan nor a build.
    """
    from partc.api.builds import check_plan_path
    from partc.planner.model.plan_file import PLAN_FILE, parse_plan, read_plan
    from partc.planner.simulate.build import read_build
    from partc.planner.simulate.case import read_case

    if str(path) == "-":
        return read_case(parse_plan(sys.stdin.read(), "-"), "-"), None
    if check_plan_path(path):
        return read_case(read_plan(path), str(path)), None
    file = path / PLAN_FILE
    return read_case(read_plan(file), str(file)), read_build(path)


def _changed(
    case: Case, bandwidth: tuple[str, ...], speed: tuple[str, ...], efficiency: float | None
) -> Case:
    """The case with the what-ifs applied.

    Raises:
        PlanError: no device has a part of a block.
    """
    from dataclasses import replace

    from partc.errors import PlanError
    from partc.planner.model.change import with_bandwidths, with_efficiency, with_speeds

    if efficiency is not None:
        if not case.phases:
            hint = "--strategy galaxy, megatron or sequence-parallel lets devices share blocks; optimal-groups may"
            raise PlanError("no devices share a block in this plan", where="--efficiency", hint=hint)
        case = replace(case, problem=with_efficiency(case.problem, efficiency))
    problem = with_bandwidths(case.problem, _links(case.problem, bandwidth))
    return replace(case, problem=with_speeds(problem, _speeds(problem, speed)))


def _idle(case: Case, work: Workflow, bandwidth: tuple[str, ...], speed: tuple[str, ...]) -> Iterator[str]:
    """What-ifs that change nothing, since the plan does without the link or the device."""
    from partc.planner.simulate.script import busy_s

    busy = {name for script in work.scripts for name in busy_s(script, work.link_of)}
    for text in bandwidth:
        if not any(f"{a}->{b}" in busy for a, b in _links(case.problem, (text,))):
            yield f"--bandwidth {text} changes nothing: the plan sends nothing on that link"
    for text in speed:
        if not busy.intersection(_speeds(case.problem, (text,))):
            yield f"--speed {text} changes nothing: the plan does not use that device"


def _speeds(problem: Problem, speed: tuple[str, ...]) -> dict[str, float]:
    """Device -> factor."""
    factors: dict[str, float] = {}
    for text in speed:
        name, factor = _factor(text, "--speed", f"--speed {problem.source}=2x")
        _check_device(problem, name, "--speed")
        _refuse_second(name in factors, name, "--speed")
        factors[name] = factor
    return factors


def _refuse_second(is_known: bool, name: str, option: str) -> None:
    from partc.errors import PlanError

    if is_known:
        raise PlanError(f"{name} is given twice", where=option, hint="give one factor for it")


def _links(problem: Problem, bandwidth: tuple[str, ...]) -> dict[tuple[str, str], float]:
    """Directed pair -> factor; of `a-b` both ways, as far as they are there."""
    from partc.errors import PlanError

    names = list(problem.device_of)
    factors: dict[tuple[str, str], float] = {}
    for text in bandwidth:
        link, factor = _factor(text, "--bandwidth", f"--bandwidth {names[0]}-{names[-1]}=2x")
        pairs = [pair for pair in _ends(link, problem) if pair in problem.link_of]
        if not pairs:
            known = ", ".join(f"{a}->{b}" for a, b in problem.link_of)
            hint = f"links: {known}" if known else "its devices have no links"
            raise PlanError(f"the plan has no link {link}", where="--bandwidth", hint=hint)
        for a, b in pairs:
            _refuse_second((a, b) in factors, f"{a}->{b}", "--bandwidth")
            factors[a, b] = factor
    return factors


def _ends(link: str, problem: Problem) -> list[tuple[str, str]]:
    """The pairs that `a->b` (one) or `a-b` (both ways) stands for; names of devices may have such signs in them."""
    for a in problem.device_of:
        for sign in ("->", "-"):
            b = link.removeprefix(a + sign)
            if b != link and b in problem.device_of:
                return [(a, b)] if sign == "->" else [(a, b), (b, a)]
    a, _, b = link.partition("->" if "->" in link else "-")
    for name in (a, b):
        _check_device(problem, name, "--bandwidth")
    return []


def _factor(text: str, option: str, usage: str) -> tuple[str, float]:
    """`a=2x`: the name and the factor.

    Raises:
        PlanError: it does not look like that.
    """
    from partc.errors import PlanError

    name, equals, number = text.strip().rpartition("=")
    try:
        factor = float(number.strip().removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not equals or not name or not factor > 0:
        raise PlanError(f"`{text}` is not a name and a factor above zero", where=option, hint=usage)
    if not _LEAST <= factor <= _MOST:
        raise PlanError(
            f"the factor of `{text}` is not between {_LEAST:g} and {_MOST:,.0f}", where=option, hint=usage
        )
    return name.strip(), factor


def _check_device(problem: Problem, name: str, option: str) -> None:
    from partc.errors import PlanError

    if name not in problem.device_of:
        known = ", ".join(problem.device_of)
        raise PlanError(f"`{name}` is not one of the devices", where=option, hint=f"the devices are: {known}")
