"""`partc verify`: does the cut model compute what the original computes?"""

from __future__ import annotations

from pathlib import Path

import click

from partc.cli.options import FILE, example, json_option, print_json


@click.command(
    "verify",
    short_help="Prove that a bundle computes what the model computes.",
    epilog=example("partc verify build", 'partc verify build --prompt "Once upon a time" --tokens 32 --json'),
)
@click.argument("build", type=FILE, default="build")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="TEXT",
    help="A prompt instead of the built-in ones. Repeatable.",
)
@click.option(
    "--tokens", default=64, show_default=True, type=click.IntRange(1), metavar="N", help="Tokens to generate."
)
@click.option("--model", metavar="MODEL", help="The original, where it has moved since it was compiled.")
@json_option("the report")
def verify_command(
    build: Path, prompts: tuple[str, ...], tokens: int, model: str | None, as_json: bool
) -> None:
    """Run the original and the cut model in BUILD on the same inputs and compare tokens and every cut.

    Exit code 1 where they differ.
    """
    from partc.cli.load import load_build
    from partc.cli.progress import progress_bar
    from partc.cli.verdict import print_report
    from partc.verify import verify_build

    load_build(build)  # whether it is a build at all comes before what it was compiled from
    if model is None:
        _check_origin(build)
    with progress_bar() as bar:
        bar.start("verify")
        report = verify_build(build, prompts, tokens, model=model, progress=bar.update)
    if as_json:
        print_json(report.to_json())
    else:
        print_report(report)
    if not report.equal:
        click.get_current_context().exit(1)


def _check_origin(build: Path) -> None:
    """Say how to name the original, where it is not any more where it was compiled from."""
    from partc.errors import ConfigError
    from partc.verify.origin import read_origin

    try:
        read_origin(build)
    except ConfigError as error:
        raise ConfigError(
            f"the original of this build: {error.message}",
            where=error.where,
            hint=f"if it has moved, name it: partc verify {build} --model MODEL",
        ) from error
