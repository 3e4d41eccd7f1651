"""`partc diff`: what changed between two builds, plans, graphs or models."""

from __future__ import annotations

import click

from partc.cli.options import example, json_option, print_json


@click.command(
    "diff",
    short_help="Tell what changed between two builds or graphs.",
    epilog=example(
        "partc diff build build.new",
        "partc diff plan.json other/plan.json",
        "partc diff before.partc after.partc --json",
        "partc diff old.onnx new.onnx",
    ),
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@json_option("the changes")
def diff_command(before: str, after: str, as_json: bool) -> None:
    """Tell what changed from A to B, in the terms of the model: operators, cuts, devices, bytes, files.

    A and B are two builds, two plans (plan.json), two graphs (what `partc lower` prints, *.partc) or two models. Nodes
    are matched by structure, not by names. The exit code is 1 if anything changed.
    """
    from partc.cli.load import load_model
    from partc.differences.things import compare_things
    from partc.golden.reports import change_lines

    changes = compare_things(before, after, load_model)
    if as_json:
        print_json([change.to_json() for change in changes])
    elif changes:
        for line in change_lines(changes, ""):
            click.echo(line)
    else:
        click.echo("nothing changed")
    if changes:
        click.get_current_context().exit(1)
